"""Questions about images as canvases, for Lumina-DiMOO, which reads images as rows of codes.

The row is `mmu` of `mmrl.models.layouts.lumina_rows`. Images have the sides of `published_sizes`
whose aspect ratio is nearest theirs. They precede the last token of the prompt, `</user>`, so marks
only say that there is one. Padding, on the left, is never attended to; a response holds no image
codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from PIL import Image

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_marks import MARK, count_marks, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.lumina_rows import ANSWER, LuminaRows
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.published_sizes import fit_size
from mmrl.models.layouts.question_layout import QuestionLayout, Row, image_key
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.types import Canvas, Prompt


@dataclass(frozen=True)
class LuminaChat(QuestionLayout):
    """Renders prompts with images as codes.

    Args:
        text: layout of the text, whose end tokens are `end_answer`.
        rows: of the checkpoint.
        vq: its image tokenizer.
        side: of a square image in codes; others have at most as many.
        image_fit: how an image takes its sides.
    """

    needs_vq: ClassVar[bool] = True
    needs_tower: ClassVar[bool] = False

    text: TextLayout
    rows: LuminaRows
    vq: ImageTokenizer
    side: int
    image_fit: ImageFit = "crop"

    @property
    def ids(self) -> Mapping[str, int]:
        return self.rows.ids

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The token that ends an answer."""
        return (self.ids["end_answer"],)

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has images, with a mark for each or none, and is one
        turn of a user, after a system message or none."""
        images, marks = len(prompt.images or ()), count_marks(prompt)
        if images < 1 or marks not in (0, images):
            raise ValueError(
                f"prompt {prompt.id!r} has {images} images and {marks} marks {MARK}; give at least"
                " one image, with a mark for each or none."
            )
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

    def positions(self, prompt: Prompt) -> int:
        grids = (self.grid_of(size) for size in prompt.image_sizes)
        return sum(height * (width + 1) + 2 for height, width in grids)

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas; see `QuestionLayout.canvas`. The end of the answer is given."""
        canvas = super().canvas(prompts, length)
        end = torch.full((len(canvas), 1), self.ids["end_answer"])
        added = {
            "tokens": end,
            "uncond_tokens": torch.full_like(end, self.ids["mask"]),
            "response": end < 0,
            "attend": end >= 0,
            "uncond_attend": end >= 0,
        }
        known = {name: getattr(canvas, name) for name in added}
        longer = {k: torch.cat((v, added[k]), 1) for k, v in known.items() if v is not None}
        return replace(canvas, vocab=(0, self.rows.code_offset), **longer)

    def album(self) -> LuminaAlbum:
        return LuminaAlbum(self)

    def grid_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width in codes of an image of so many pixels, width first."""
        width, height = fit_size(size, (self.side // 2) ** 2)
        return 2 * height, 2 * width

    def show(self, image: Image.Image) -> list[int]:
        """Token ids of an image, encoded alone so that no other can change them."""
        grid, device = self.grid_of(image.size), next(self.vq.parameters()).device
        height, width = (side * self.vq.downsample for side in grid)
        pixels = image_to_pixels(image, (height, width), self.image_fit)
        codes = self.vq.get_code(pixels[None].to(device))[0].cpu() + self.rows.code_offset
        return self.rows.image(codes, grid).tolist()


class LuminaAlbum:
    """Images as the tokens that show them, each opened and encoded once."""

    def __init__(self, chat: LuminaChat) -> None:
        self.chat = chat
        self.images: dict[Hashable, list[int]] = {}

    def add(self, images: Sequence[Image.Image], number: int) -> Row:
        """The row of an image: its tokens."""
        key = image_key(images, number)
        if key not in self.images:
            self.images[key] = self.chat.show(images[number])
        return self.images[key], [-1] * len(self.images[key])

    def features(self, at: torch.Tensor) -> None:
        """None: no embedding replaces a token."""
