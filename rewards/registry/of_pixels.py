"""A reward that is a function of pixels, so that its score has a gradient.

    def brightness(samples, pixels):
        return torch.stack([image.mean() for image in pixels])

    rewards: [{name: path/to/file.py:brightness}]

The function of the user's own has an argument `pixels`: it gets the images [3, H, W] float32 in
[0, 1] of the samples, which may differ in size, and returns a tensor with a number for each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmrl.rewards.parsing.images import image_of, read_pixels
from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor


def takes_pixels(found: Any) -> bool:
    """Whether a callable, which is no class, has an argument `pixels`."""
    try:
        return not isinstance(found, type) and "pixels" in inspect.signature(found).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


class OfPixels:
    """The reward of such a function with its options; see `Differentiable`."""

    needs = ("images",)

    def __init__(self, function: Callable[..., Tensor], options: Mapping[str, Any]) -> None:
        self.function, self.options = function, options

    def __call__(self, samples: list[Sample]) -> list[float]:
        """A number for each sample, of its image."""
        import torch

        pixels = [read_pixels(image_of(sample, "of pixels")) for sample in samples]
        with torch.no_grad():
            return self.score_pixels(pixels, samples).tolist() if samples else []

    def score_pixels(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """See `Differentiable`."""
        return self.function(samples, pixels=pixels, **self.options)
