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
"""Step weights by the name used in configurations."""


def step_factors(name: str, sigmas: Tensor, deviation: Tensor, pool: Tensor) -> Tensor:
    """The weight of each step of each row.

    Args:
        name: a key of `STEP_WEIGHTS`.
        sigmas: [B, S + 1] float32, noise levels from 1 to 0.
        deviation: [B, S] float32, of each number of the latent in a step where it is stochastic;
            0 where it cannot be.
        pool: [B, S] bool, the steps from which those that are stochastic were chosen, not those
            alone: of a single one `flash` would be 1. Each row has some.

    Returns:
        [B, S] float32; no row depends on another.
    """
    return STEP_WEIGHTS[name](sigmas, deviation, pool)
