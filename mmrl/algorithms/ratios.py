"""Ratio levels: over what the importance ratio pi_new / pi_old is formed; and estimators of the KL.

A level maps log-ratios [K, B, L], and which of them count, to log-ratios of the same shape,
each entry the log of the ratio that multiplies its advantage. Levels above the token take the mean
over tokens (the geometric mean of their ratios), with the gradient of that mean at every entry; an
entry that covers several tokens (a bound of a whole response) is divided by their number. The
further arguments are these `sizes`, broadcast to the entries, and the `blocks` [B, L].

    token      every value by itself
    step       the mean over a row's values in a pass: a recorded step or slice of strategy: trace
    block      the mean over a row's values in a block of positions, over all passes
    sequence   the mean over all of a row's values (GSPO, arXiv 2507.18071)
    none       no ratio: exp(new - stop_gradient(new)), so the policy gradient without correction

KL estimators from log-probs of sampled tokens (Schulman 2020), with d = reference - policy:

    k1 = -d      k2 = d^2 / 2      k3 = exp(d) - d - 1

k1 is unbiased in value but its plain gradient has mean zero; k2 has the gradient of the KL; k3 is
never negative and is what GRPO uses.

The KL of denoising steps in closed form, of the Gaussians a step of a latent is drawn from: with mu
and mu' its means under two policies, s its deviation of each number, dt < 0 the change of the noise
level and a mean over the numbers of a row's latent,

    gaussian         mean[(mu - mu')^2] / (2 s^2), the KL of a number
    gaussian_rate    -dt mean[(mu - mu')^2] / (2 s^2), which counts a step by its length

and of latents that are noised again, with v and v' the velocities under two policies,

    velocity         mean[(v - v')^2]

The public codes call both of the first the KL, so a weight `beta` belongs to one of them:
`gaussian` is that of UniRL, of flow_grpo for Wan and of every kernel whose deviation has no factor
sqrt(-dt); `gaussian_rate` that of flow_grpo for SD3, FLUX, Qwen-Image and Bagel, and of verl-omni.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mmrl.types import Gaussian, Prediction, Scores

if TYPE_CHECKING:
    from torch import Tensor


def token(new: Tensor, old: Tensor, counts: Tensor, *_: Tensor | None) -> Tensor:
    """new - old, entry by entry."""
    return (new - old) * counts


def mean_over(*over: int) -> Callable[..., Tensor]:
    """The ratio level of the mean of new - old over each row's counted entries in some dims."""

    def log_ratio(
        new: Tensor, old: Tensor, counts: Tensor, sizes: Tensor | None = None, *_: Tensor | None
    ) -> Tensor:
        tokens = counts if sizes is None else counts * sizes
        number = tokens.sum(over, keepdim=True).clamp(min=1)
        mean = ((new - old) * counts).sum(over, keepdim=True) / number
        return mean.expand_as(new) * counts

    return log_ratio


def block(
    new: Tensor,
    old: Tensor,
    counts: Tensor,
    sizes: Tensor | None = None,
    blocks: Tensor | None = None,
) -> Tensor:
    """The mean of new - old over each row's counted entries in the same block."""
    assert blocks is not None, "block_size is checked with the configuration"
    place = blocks.clamp(min=0)
    empty = new.new_zeros(len(blocks), int(place.max()) + 1)
    total = empty.scatter_add(1, place, ((new - old) * counts).sum(0))
    number = empty.scatter_add(1, place, counts.sum(0).to(new.dtype)).clamp(min=1)
    return (total / number).gather(1, place).expand_as(new) * counts


def none(new: Tensor, old: Tensor, counts: Tensor, *_: Tensor | None) -> Tensor:
    """0 in value with the gradient of new: REINFORCE."""
    return (new - new.detach()) * counts


class RatioLevel(NamedTuple):
    """A row of `RATIO_LEVELS`. `pass_by_pass`: whether each ratio belongs to one pass."""

    log_ratio: Callable[..., Tensor]
    pass_by_pass: bool = False


RATIO_LEVELS = {
    "token": RatioLevel(token, pass_by_pass=True),
    "step": RatioLevel(mean_over(-1), pass_by_pass=True),
    "block": RatioLevel(block),
    "sequence": RatioLevel(mean_over(0, -1)),
    "none": RatioLevel(none, pass_by_pass=True),
}
"""Ratio levels by the name used in configurations."""


def k1(policy: Tensor, reference: Tensor) -> Tensor:
    """policy - reference."""
    return policy - reference


def k2(policy: Tensor, reference: Tensor) -> Tensor:
    """(policy - reference)^2 / 2."""
    return (policy - reference).square() / 2


def k3(policy: Tensor, reference: Tensor) -> Tensor:
    """exp(reference - policy) - (reference - policy) - 1."""
    difference = reference - policy
    return difference.exp() - difference - 1


KL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""KL estimators by the name used in configurations."""


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


def velocity(policy: Prediction, other: Prediction) -> Tensor:
    """[K, B]: the mean squared difference of velocities."""
    return policy.mean((policy.error - other.error).square())


PREDICTION_KL = {"velocity": velocity}
"""What takes the place of a KL of latents that are noised again, by name."""


def kl_of_actions(name: str, policy: Scores, reference: Scores, scored: Tensor) -> Tensor:
    """[K, B, N]: the KL of every scored action, 0 elsewhere."""
    for table, kept in ((GAUSSIAN_KL, "gaussian"), (PREDICTION_KL, "prediction")):
        if name in table:
            return table[name](getattr(policy, kept), getattr(reference, kept))[..., None] * scored
    # both 0 elsewhere, so that nothing there can overflow and spoil the gradient
    return KL[name](policy.logprobs * scored, reference.logprobs * scored)
