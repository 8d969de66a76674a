"""Brightness as a reward: what any image model learns within a minute, to see that a run works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.types import Sample

if TYPE_CHECKING:
    from torch import Tensor

GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in a grey value (ITU-R BT.601)."""


def brightness(samples: Sequence[Sample], pixels: Sequence[Tensor]) -> Tensor:
    """[n] the mean of the grey values of each image, from 0 (black) to 1, with its gradient."""
    import torch

    means = torch.stack([image.flatten(1).mean(-1) for image in pixels])
    return means @ means.new_tensor(GREY)
