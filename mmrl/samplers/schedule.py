"""Masking schedules: the share of positions still masked at time t in [0, 1].

    cosine  alpha(t) = cos(pi t / 2)            MaskGIT, arXiv 2202.04200
    linear  alpha(t) = 1 - t                    MDLM, arXiv 2406.07524

alpha is evaluated in float32, as the public samplers do, so that counts derived from it agree.
"""

from __future__ import annotations

import math

import torch

SCHEDULES = {
    "cosine": lambda t: torch.cos(t * math.pi * 0.5),
    "linear": lambda t: (1 - t).clamp(min=1e-6, max=1.0),
}


def alpha(schedule: str, step: int, steps: int) -> torch.Tensor:
    """Share of positions masked after `step` of `steps`, a 0-dim float32 tensor."""
    return SCHEDULES[schedule](torch.tensor(step / steps))
