"""Step weights: what the policy's terms of trained denoising steps are multiplied by.

With s the deviation of a step and dt < 0 the change of the noise level sigma,

    tempflow   2.25 s: steps that draw more noise count more (TempFlow-GRPO, arXiv 2508.04324)
    flash      1 / (-dt / s + s (1 - sigma) / (2 sigma)), divided by its mean over the steps that
               could have been trained: what it divides by is the size of the gradient of a step's
               log-prob by the velocity (Flash-GRPO, arXiv 2605.15980)

A new weight is a function and a line in `STEP_WEIGHTS`. This file is read without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def tempflow(sigmas: Tensor, deviation: Tensor, pool: Tensor) -> Tensor:
    """By the noise of a step."""
    return 2.25 * deviation


def flash(sigmas: Tensor, deviation: Tensor, pool: Tensor) -> Tensor:
    """By the inverse of the gradient of a step; the mean over the pool is 1."""
    sigma, interval = sigmas[:, :-1], -sigmas.diff()
    given = deviation > 0
    noise = deviation.where(given, 1.0)
    raw = (1 / (interval / noise + noise * (1 - sigma) / (2 * sigma))).where(given, 0.0)
    mean = (raw * pool).sum(-1, keepdim=True) / pool.sum(-1, keepdim=True)
    return raw / mean


STEP_WEIGHTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "flash": flash,
    "tempflow": tempflow,
}
"""Step weights by the name used in configurations: functions from noise levels [B, S + 1] float32
from 1 to 0, the deviation [B, S] of each number of the latent in a step, 0 where it draws nothing,
and the pool [B, S] bool of steps from which those that draw were chosen, to the weights [B, S]. Of
the chosen alone, a single one, `flash` would be 1. No row depends on another.
"""
