"""The five layers from features to a score in LAION's aesthetic predictor and ImageReward.

    width to 1024 to 128 to 64 to 16 to 1, linear, one after the other

Both are published with dropout and without activations in between, so at scoring time they are one
affine map. They are separate layers because the checkpoints have separate weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

SIZES = (1024, 128, 64, 16, 1)


def build_score_layers(width: int) -> nn.Sequential:
    """Layers for features [n, width] at their published indices 0, 2, 4, 6 and 7."""
    from torch import nn

    linear = [nn.Linear(a, b) for a, b in zip((width, *SIZES), SIZES, strict=False)]
    dropout = [nn.Dropout(share) for share in (0.2, 0.2, 0.1)]
    paired = [layer for pair in zip(linear, dropout, strict=False) for layer in pair]
    return nn.Sequential(*paired, *linear[3:])
