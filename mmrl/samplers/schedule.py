"""Masking schedules: the share of positions still masked at time t in [0, 1].

    cosine  alpha(t) = cos(pi t / 2)            MaskGIT, arXiv 2202.04200
    linear  alpha(t) = 1 - t                    MDLM, arXiv 2406.07524
    pow     alpha(t) = 1 - t^2                  MaskGIT's square
    sigmoid alpha(t) = (s(3) - s(6 t - 3)) / (s(3) - s(-3)), s logistic; arXiv 2301.10972

alpha is evaluated in float32, as the public samplers do, so that counts derived from it agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from mmrl.config import Settings, one_of

if TYPE_CHECKING:
    from torch import Tensor

_SPAN = 2 / (1 + math.exp(-3)) - 1
"""s(3) - s(-3)."""

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine": lambda t: (t * math.pi * 0.5).cos(),
    "linear": lambda t: (1 - t).clamp(min=1e-6, max=1.0),
    "pow": lambda t: 1 - t**2,
    "sigmoid": lambda t: 0.5 - ((6 * t - 3).sigmoid() - 0.5) / _SPAN,
}


@dataclass(kw_only=True)
class ScheduleConfig(Settings):
    """Options of rules that follow a masking schedule."""

    schedule: Annotated[str, one_of(SCHEDULES)] = "cosine"
    """Masking schedule: cosine, linear, pow or sigmoid."""


def alpha(schedule: str, step: int, steps: int) -> Tensor:
    """Share of positions masked after `step` of `steps`, a 0-dim float32 tensor."""
    import torch

    return SCHEDULES[schedule](torch.tensor(step / steps))
