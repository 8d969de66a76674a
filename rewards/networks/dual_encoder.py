"""Cosine similarity of an image tower and a text tower, the core of every CLIP-like reward.

Towers may run under autocast; the normalisation and the dot product are always float32, because
half precision has steps of about 2.4e-4 between 0.25 and 0.5, which is as large as the differences
inside a group of rollouts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from mmrl.config import check
from rewards.networks.placement import resolve_device, resolve_dtype

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


class DualEncoder:
    """An open_clip model with its tokenizer and its image transform.

    Args:
        model: offers `encode_image([b, 3, H, W])` and `encode_text([b, T])`.
        tokenizer: maps a list of strings to token ids [b, T] int64.
        transform: maps an RGB PIL image to a float32 tensor [3, H, W].
        device: where the towers run; "auto" takes the current CUDA device if there is one.
        dtype: autocast dtype of the towers; "float32" switches autocast off.
        batch_size: rows encoded at once.
        fill: rows are encoded in multiples of this, the last one repeated. Matrix products choose
            their kernels by the number of rows, so that the last bits of a score depend on what
            else is scored. A multiple makes such differences rarer; `batch_size` gives every
            batch one shape.

    Raises:
        ValueError: `batch_size` or `fill` is below 1.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Callable[[list[str]], Tensor],
        transform: Callable[[Image.Image], Tensor],
        device: str = "auto",
        dtype: str = "float32",
        batch_size: int = 32,
        fill: int = 8,
    ) -> None:
        check(batch_size >= 1, "batch_size", batch_size, "at least 1")
        check(fill >= 1, "fill", fill, "at least 1")
        self.device = resolve_device(device)
        self.model = model.to(self.device).eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.transform = transform
        self.dtype = resolve_dtype(dtype)
        self.batch_size, self.fill = batch_size, fill

    def cosine(self, images: Sequence[Image.Image], texts: Sequence[str]) -> list[float]:
        """Cosine of each image with its own text, in [-1, 1]; a text is encoded once however often
        it occurs (the rollouts of a group share their prompt)."""
        if not images:
            return []
        unique = list(dict.fromkeys(texts))
        row_of = {text: row for row, text in enumerate(unique)}
        text_features = self.encode_texts(unique)[[row_of[text] for text in texts]]
        return (self.encode_images(images) * text_features).sum(-1).tolist()

    def encode_images(self, images: Sequence[Image.Image]) -> Tensor:
        """[n, D] float32 rows of length one, on the CPU."""
        import torch

        return self._encode(
            images,
            lambda part: torch.stack([self.transform(image) for image in part]),
            self.model.encode_image,
        )

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """[n, D] float32 rows of length one, on the CPU."""
        return self._encode(texts, lambda part: self.tokenizer(list(part)), self.model.encode_text)

    def _encode(
        self, items: Sequence[Any], collate: Callable[[Any], Tensor], tower: Callable[[Any], Tensor]
    ) -> Tensor:
        import torch
        from torch.nn import functional as F

        rows = []
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)
        for start in range(0, len(items), self.batch_size):
            part = items[start : start + self.batch_size]
            with torch.no_grad():
                inputs = fill_up(collate(part), self.fill).to(self.device)
                with autocast:
                    features = tower(inputs)
                rows.append(F.normalize(features.float(), dim=-1)[: len(part)].cpu())
        return torch.cat(rows)


def fill_up(inputs: Tensor, multiple: int) -> Tensor:
    """`inputs` [n, …] with the last row repeated until n is a multiple of `multiple`."""
    import torch

    missing = -len(inputs) % multiple
    return torch.cat((inputs, inputs[-1:].expand(missing, *inputs.shape[1:])))
