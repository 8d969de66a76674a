"""KL of denoising steps, in closed form: of the Gaussians a step of a latent is drawn from.

With mu and mu' the means of a step under two policies, s its deviation of each number, dt < 0 the
change of the noise level and a mean over the numbers of a row's latent,

    gaussian         mean[(mu - mu')^2] / (2 s^2), the KL of a number
    gaussian_rate    -dt mean[(mu - mu')^2] / (2 s^2), which counts a step by its length

The public codes call both the KL, so a weight `beta` belongs to one of them: `gaussian` is that of
UniRL, of flow_grpo for Wan and of every kernel whose deviation has no factor sqrt(-dt);
`gaussian_rate` that of flow_grpo for SD3, FLUX, Qwen-Image and Bagel, and of verl-omni.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mmrl.types import Gaussian

if TYPE_CHECKING:
    from torch import Tensor


def gaussian(policy: Gaussian, other: Gaussian) -> Tensor:
    """[K, B]: the KL of a step, per number; 0 where a pass has no step."""
    square = (policy.mean - other.mean).square().sum(-1) / policy.size
    given = policy.deviation > 0  # a 1 elsewhere keeps values and gradients from NaN
    return (square / (2 * policy.deviation.where(given, 1.0).square())).where(given, 0)


def gaussian_rate(policy: Gaussian, other: Gaussian) -> Tensor:
    """[K, B]: the KL of a step, per number, times how far the noise level falls in it."""
    return gaussian(policy, other) * policy.interval


GAUSSIAN_KL: dict[str, Callable[[Gaussian, Gaussian], Tensor]] = {
    "gaussian": gaussian,
    "gaussian_rate": gaussian_rate,
}
"""KL of denoising steps by the name used in configurations."""
