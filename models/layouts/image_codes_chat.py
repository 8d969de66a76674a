"""Questions about images as canvases, for networks that read images as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_marks import check_images, check_one_image, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.lumina_rows import ANSWER, LuminaRows
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import encode_image, fit_size
from mmrl.models.layouts.question_layout import Album, QuestionLayout, Row, image_key
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.types import Prompt


@dataclass(frozen=True)
class CodesChat(QuestionLayout):
    """Renders prompts with images as codes; `rows.show(codes, grid)` are the tokens of an image."""

    needs_vq: ClassVar[bool] = True

    text: TextLayout
    rows: Any
    vq: ImageTokenizer

    @property
    def ids(self) -> Mapping[str, int]:  # type: ignore[override]
        return self.rows.ids

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width in codes of an image of so many pixels, width first."""
        raise NotImplementedError

    def positions(self, prompt: Prompt) -> int:
        grids = (self.grid_of(size) for size in prompt.image_sizes)
        return sum(len(self.rows.show(torch.zeros(h * w), (h, w))) for h, w in grids)

    def album(self) -> CodesAlbum:
        return CodesAlbum(self)


@dataclass(frozen=True)
class ImageCodesChat(CodesChat):
    """Renders prompts with one image, of `grid` (height, width) in codes by `image_fit`, for MMaDA.

        eos* mmu soi code×n eoi conversation | mask×n'

    The conversation is the prompt through the chat template, without a system message, and begins
    with the token that begins a text, as in training (`MmadaRows.image_to_text`). The network was
    trained with one image before all text, so marks or image parts only say that there is one.
    Padding is masked as in `TextLayout`, whatever the mask policy of image generation is.
    """

    check = staticmethod(check_one_image)

    rows: MmadaRows
    grid: tuple[int, int]
    image_fit: ImageFit = "crop"

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before the image, which is empty, and after it. Raises ValueError:
        see `check`; also messages, and a tokenizer without a chat template."""
        self.check(prompt)
        ids, bos = self.text.prompt_ids(without_images(prompt)), self.ids["bos"]
        return [[], ids if ids[:1] == [bos] else [bos, *ids]]

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        return self.grid


@dataclass(frozen=True)
class LuminaChat(CodesChat):
    """Renders prompts with images of at most `side` x `side` codes as the row `mmu` of
    `mmrl.models.layouts.lumina_rows`; the end tokens of its text are `end_answer`.

    Images have the sides of `fit_size` whose aspect ratio is nearest theirs, by `image_fit`, and
    precede the last token of the prompt, `</user>`, so marks only say that there is one. Padding,
    on the left, is never attended to; a response holds no image codes."""

    rows: LuminaRows
    side: int
    image_fit: ImageFit = "crop"

    @property
    def stop_ids(self) -> tuple[int, ...]:
        return (self.ids["end_answer"],)

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has images, with a mark for each or none, and is one
        turn of a user, after a system message or none."""
        check_images(prompt)
        roles = [message["role"] for message in prompt.messages or ()]
        if roles not in ([], ["user"], ["system", "user"]):
            raise ValueError(
                f"prompt {prompt.id!r} has messages of {', '.join(roles)}; this checkpoint reads"
                " one of a user, after one of the system or none."
            )

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before, between and after the images of a prompt."""
        self.check(prompt)
        bare = without_images(prompt)
        said = {message["role"]: message["content"] for message in bare.messages or ()}
        ids = self.rows.prompt(said.get("user", bare.text), said.get("system", ANSWER))
        given = self.rows.tokenizer(prompt.prefill, add_special_tokens=False)["input_ids"]
        between = [[]] * (len(prompt.images or ()) - 1)
        return [ids[:-1], *between, [ids[-1], self.ids["answer"], *given]]

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> MaskedCanvas:
        """B prompts -> canvas; see `QuestionLayout.canvas`. The end of the answer is given."""
        canvas: Any = super().canvas(prompts, length)
        end = torch.full((len(canvas), 1), self.ids["end_answer"])
        added = {"tokens": end, "uncond_tokens": torch.full_like(end, self.ids["mask"])}
        added |= {"response": end < 0, "attend": end >= 0, "uncond_attend": end >= 0}
        known = {name: getattr(canvas, name) for name in added}
        longer = {k: torch.cat((v, added[k]), 1) for k, v in known.items() if v is not None}
        return replace(canvas, columns=(0, self.rows.code_offset), **longer)

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = fit_size(size, (self.side // 2) ** 2)
        return 2 * height, 2 * width


class CodesAlbum(Album):
    """Images as the tokens that show them, each opened and encoded once."""

    def __init__(self, chat: Any) -> None:
        super().__init__()
        self.chat = chat

    def put(self, images: Sequence[Image.Image], number: int, codes: Tensor) -> None:
        """Add an image that is encoded already: codes [n] of its tokenizer."""
        grid = self.chat.grid_of(images[number].size)
        self.rows[image_key(images, number)] = self._frame(codes, grid)

    def _show(self, image: Image.Image) -> Row:
        grid = self.chat.grid_of(image.size)
        return self._frame(encode_image(self.chat.vq, image, grid, self.chat.image_fit), grid)

    def _frame(self, codes: Tensor, grid: tuple[int, int]) -> Row:
        ids = self.chat.rows.show(codes + self.chat.rows.code_offset, grid).tolist()
        return ids, [-1] * len(ids)
