"""Questions about images as canvases, for networks that read images as tokens (MMaDA).

    eos* mmu soi code×n eoi conversation | mask×n'

The conversation is the prompt through the chat template, without a system message, and begins with
the token that begins a text, as in training (`MmadaRows.image_to_text`). The network was trained
with one image before all text, so the image comes first: a prompt with several images is refused,
and marks or image parts only say that there is one. Padding is masked as in `TextLayout`, whatever
the mask policy of image generation is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_marks import MARK, count_marks, without_images
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.mmada_rows import MmadaRows
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.layouts.question_layout import QuestionLayout, Row, image_key
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.types import Prompt


@dataclass(frozen=True)
class ImageCodesChat(QuestionLayout):
    """Renders prompts with an image as codes.

    Args:
        text: layout of the text.
        rows: of the checkpoint.
        vq: its image tokenizer.
        grid: height and width of an image in codes.
        image_fit: how an image becomes a square.
    """

    needs_vq: ClassVar[bool] = True
    needs_tower: ClassVar[bool] = False

    text: TextLayout
    rows: MmadaRows
    vq: ImageTokenizer
    grid: tuple[int, int]
    image_fit: ImageFit = "crop"

    @property
    def ids(self) -> Mapping[str, int]:
        return self.rows.ids

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Raise a ValueError unless a prompt has exactly one image, and one mark or none."""
        images, marks = len(prompt.images or ()), count_marks(prompt)
        if images != 1 or marks > 1:
            raise ValueError(
                f"prompt {prompt.id!r} has {images} images and {marks} marks {MARK}; this"
                " checkpoint reads exactly one image, before the text. Give one, with one mark or"
                " none."
            )

    def pieces(self, prompt: Prompt) -> list[list[int]]:
        """Token ids of the text before the image, which is empty, and after it.

        Raises:
            ValueError: see `check`; also messages, and a tokenizer without a chat template.
        """
        self.check(prompt)
        ids, bos = self.text.prompt_ids(without_images(prompt)), self.ids["bos"]
        return [[], ids if ids[:1] == [bos] else [bos, *ids]]

    def positions(self, prompt: Prompt) -> int:
        frame = self.rows.show(torch.zeros(1, 0, dtype=torch.long)).shape[1]
        return frame + self.grid[0] * self.grid[1]

    def album(self) -> CodesAlbum:
        return CodesAlbum(self)

    def codes(self, image: Image.Image) -> Tensor:
        """[n] int64 token ids of an image, encoded alone so that no other can change them."""
        device = next(self.vq.parameters()).device
        pixels = image_to_pixels(image, self.grid[0] * self.vq.downsample, self.image_fit)
        return self.vq.get_code(pixels[None].to(device))[0] + self.rows.code_offset


class CodesAlbum:
    """Images as the tokens that show them, each opened and encoded once."""

    def __init__(self, chat: ImageCodesChat) -> None:
        self.chat = chat
        self.images: dict[Hashable, Tensor] = {}

    def add(self, images: Sequence[Image.Image], number: int) -> Row:
        """The row of an image: its tokens."""
        key = image_key(images, number)
        if key not in self.images:
            self._show(key, self.chat.codes(images[number]).cpu())
        ids = self.images[key].tolist()
        return ids, [-1] * len(ids)

    def put(self, images: Sequence[Image.Image], number: int, codes: Tensor) -> None:
        """Add an image that is encoded already: codes [n] of its tokenizer."""
        self._show(image_key(images, number), codes + self.chat.rows.code_offset)

    def _show(self, key: Hashable, ids: Tensor) -> None:
        self.images[key] = self.chat.rows.show(ids[None])[0].int()

    def features(self, at: Tensor) -> None:
        """None: no embedding replaces a token."""
