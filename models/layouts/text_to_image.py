"""Image generation as canvases: prompts in, images out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from mmrl.types import Canvas, Prompt
from models.image_tokenizers.image_tokenizer import ImageTokenizer, to_bytes
from models.layouts.layout_config import MaskPolicy
from models.layouts.mmada_rows import MmadaRows


@dataclass(frozen=True)
class TextToImage:
    """Renders prompts as canvases with every image position masked, and decodes finished ones.

    Args:
        rows: of the checkpoint.
        vq: its image tokenizer.
        grid: height and width of the image in codes.
        mask_policy: what padding means.
    """

    needs_vq: ClassVar[bool] = True
    needs_tower: ClassVar[bool] = False

    rows: MmadaRows
    vq: ImageTokenizer
    grid: tuple[int, int]
    mask_policy: MaskPolicy

    @property
    def ids(self) -> Mapping[str, int]:
        return self.rows.ids

    @property
    def vocab(self) -> tuple[int, int]:
        """Half-open range of the image-code token ids."""
        offset = self.rows.code_offset
        return offset, offset + self.vq.codebook_size

    @staticmethod
    def check(prompt: Prompt) -> None:
        """Every prompt is accepted."""

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Every prompt fits: longer ones are cut, as in the public layouts."""
        return True

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """B prompts -> canvas with n masked positions and its unconditional twin.

        Raises:
            ValueError: a `length` other than n.
        """
        n = self.grid[0] * self.grid[1]
        if length not in (None, n):
            raise ValueError(
                f"max_completion_length is {length}; an image has {n} tokens. Leave it null."
            )
        masks = torch.full((len(prompts), n), self.rows.ids["mask"])
        tokens, attend = self.rows.text_to_image([p.text for p in prompts], masks)
        twin, twin_attend = self.rows.text_to_image([""] * len(prompts), masks)
        response = torch.zeros_like(tokens, dtype=torch.bool)
        response[:, -n - 1 : -1] = True
        canvas = Canvas(
            tokens, response, None, self.vocab, self.rows.ids["mask"], twin, None, self.grid
        )
        if self.mask_policy == "ignore":
            return canvas
        return self._without_padding(canvas, attend.bool(), twin_attend.bool())

    def decode(self, canvas: Canvas) -> list[Image.Image]:
        """Finished canvas -> B images.

        Raises:
            ValueError: a response position is unwritten or holds no image code.
        """
        tokens = canvas.tokens[canvas.response].view(len(canvas), -1)
        codes = tokens - self.rows.code_offset
        if bool((codes < 0).any() | (codes >= self.vq.codebook_size).any()):
            raise ValueError(
                f"the canvas holds tokens outside the image codes {self.vocab}; is it finished?"
            )
        device = next(self.vq.parameters()).device
        return open_images(self.vq.decode_bytes(codes.to(device), shape=canvas.grid))

    @staticmethod
    def _without_padding(canvas: Canvas, attend: Tensor, twin_attend: Tensor) -> Canvas:
        """Cut the columns that no row attends to; drop the mask of a batch without padding."""
        used = attend | twin_attend
        first = int(used.any(0).int().argmax())
        cut = canvas[:]
        for name in ("tokens", "response", "uncond_tokens"):
            setattr(cut, name, getattr(canvas, name)[:, first:])
        cut.attend, cut.uncond_attend = attend[:, first:], twin_attend[:, first:]
        return cut


def to_images(pixels: Tensor) -> list[Image.Image]:
    """Pixels [B, 3, H, W] in about [-1, 1] -> RGB images; out-of-range values are clamped."""
    return open_images(to_bytes(pixels))


def open_images(pixels: Tensor) -> list[Image.Image]:
    """Pixels [B, 3, H, W] uint8 -> RGB images."""
    return [Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in pixels]
