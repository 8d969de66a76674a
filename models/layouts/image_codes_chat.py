"""Questions about images as canvases, for networks that read images as tokens: MMaDA's.

    eos* mmu soi code×n eoi conversation | mask×n'

The conversation is the prompt through the chat template, without a system message, and begins with
the token that begins a text, as in training (`MmadaRows.image_to_text`). The network was trained
with one image before all text, so marks or image parts only say that there is one. Padding is
masked as in `TextLayout`, whatever the mask policy of image generation is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_marks import check_one_image, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import encode_image
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
    """Renders prompts with one image, of `grid` (height, width) in codes, made so by
    `image_fit`."""

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
