"""Surrogates: from the log-probs of two policies and advantages to the terms that are maximised.

With r the ratio at the chosen level and A the advantage:

    clipped     min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), PPO (arXiv 1707.06347) with a
                separate upper range (DAPO, arXiv 2503.14476)
    cispo       A min(r, 1 + eps_high) log p, the ratio without gradient: no token is left without
                one (CISPO of MiniMax-M1, arXiv 2506.13585)
    weighted    A clip(r, 1 - eps_low, 1 + eps_high) log r, the ratio without gradient and clipped
                whatever the sign of A: noise of an estimated ratio makes no term large (StableDRL,
                arXiv 2603.06743)
    geometric   A exp(mean of a row's clipped log-ratios), each clipped to [-eps_low, eps_high] on
                the side where it gains: GMPO (arXiv 2507.20673). Every entry holds the row's value
    boundary    A (1 + d) or A exp(d), never above A r: BGPO (arXiv 2510.11683), without a clip

Others hold back how far the distribution of an action moves. With p and q the probabilities of a
token under the policy and under the one that sampled, r = p / q and D = |p - q|:

    dppo        A r where D <= eps or r moves back towards 1, else 0 (DPPO, arXiv 2602.04879)
    cppo        the same under a budget that the tokens of a row share (CPPO, arXiv 2606.10968)
    drpo        A r - |A| q (r - 1)^2 / (2 eps), without an edge (DRPO, arXiv 2606.09821)

The budget: of a row's T counted tokens, from left to right in a pass, the t-th has the weight
w_t = 1 - (1 - `LAST_WEIGHT`) (t - 1) / (T - 1), and w_t D_t may reach

    min(eps, eps + a sum_{s<t} w_s - sum_{s<t} w_s D_s)

with a the 90th percentile of the row's D, held within `ALLOWANCE`. For a denoising step, with D the
KL of its Gaussians per number of the latent and s its deviation, whatever the kernel:

    flow_dppo   A r where D < eps or r moves back towards 1, else 0 (Flow-DPPO, arXiv 2606.11025)
    guard       clipped for r = exp(s (log r' + b)) and divided by -dt: the ratio r' of the step,
                and its bias b = mean[(mu - mu_old)^2] / (2 s^2), by which log r' is below 0 on
                average (GRPO-Guard, arXiv 2510.22319)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.ratios import gaussian
from mmrl.types import Gaussian

if TYPE_CHECKING:
    from torch import Tensor

LAST_WEIGHT = 0.8
"""Weight of the last token's change of probability; the first token's is 1."""
ALLOWANCE = 0.02, 0.04
"""Range of what every token adds to the budget of those after it."""
LARGEST_LOG_RATIO = 20.0
"""Where a ratio that no range clips is held, so that it cannot overflow."""


class Comparison(NamedTuple):
    """What is compared: `log_ratio`, `new` and `old` values and `counts` [K, B, L], 0 where they do
    not count; `advantages`, broadcast to them; `epsilon`, the lower and the upper range; and the
    Gaussians of both policies, where actions are drawn from such."""

    log_ratio: Tensor
    new: Tensor
    old: Tensor
    counts: Tensor
    advantages: Tensor
    epsilon: tuple[float, float]
    new_gaussian: Gaussian | None = None
    old_gaussian: Gaussian | None = None

    def step_kl(self) -> Tensor:
        """[K, B, 1]: the KL of the step to the old policy's, per number of the latent."""
        assert self.new_gaussian and self.old_gaussian, "the strategy is checked with the method"
        return gaussian(self.new_gaussian, self.old_gaussian)[..., None]


class Terms(NamedTuple):
    """`values` [K, B, L] to maximise, and where a ratio is clipped from `below` and `above`."""

    values: Tensor
    below: Tensor
    above: Tensor


def clipped(c: Comparison) -> Terms:
    """PPO's pessimistic minimum, entry by entry."""
    ratio = c.log_ratio.exp()
    low, high = 1 - c.epsilon[0], 1 + c.epsilon[1]
    values = (ratio * c.advantages).minimum(ratio.clamp(low, high) * c.advantages)
    return Terms(values, (ratio < low) & (c.advantages < 0), (ratio > high) & (c.advantages > 0))


def guard(c: Comparison) -> Terms:
    """The clipped ratio of a step without its bias, on one scale for all steps.

    The bias is that of each row, and has a gradient as in the public code: with it the logarithm is
    linear in the mean of the step, mean[(x - mu_old) (mu - mu_old)] / s.
    """
    bias, step = c.step_kl(), c.new_gaussian
    assert step is not None
    log_ratio = (c.log_ratio + bias) * step.deviation[..., None] * c.counts
    terms = clipped(c._replace(log_ratio=log_ratio))
    interval = step.interval.where(step.interval > 0, 1.0)  # where a pass has no step
    return terms._replace(values=terms.values / interval[..., None])


def cispo(c: Comparison) -> Terms:
    """The policy gradient with clipped importance weights."""
    ratio = c.log_ratio.detach().exp()
    above = (ratio > 1 + c.epsilon[1]) & (c.advantages > 0)
    values = ratio.clamp(max=1 + c.epsilon[1]) * c.advantages * c.new
    return Terms(values, above & False, above)


def weighted(c: Comparison) -> Terms:
    """The policy gradient with weights that are clipped on both sides."""
    low, high = 1 - c.epsilon[0], 1 + c.epsilon[1]
    ratio = c.log_ratio.detach().exp()
    return Terms(ratio.clamp(low, high) * c.advantages * c.log_ratio, ratio < low, ratio > high)


def row_weights(c: Comparison) -> Tensor:
    """[1, B, 1]: the weight that `weighted` gives a row whose entries have one ratio; 0 of a row
    without any."""
    weight = c.log_ratio.detach().exp().clamp(1 - c.epsilon[0], 1 + c.epsilon[1])
    return (weight * c.counts).amax((0, -1), keepdim=True)


def geometric(c: Comparison) -> Terms:
    """The geometric mean of a row's clipped ratios over all its passes, times the advantage."""
    below, above = c.log_ratio < -c.epsilon[0], c.log_ratio > c.epsilon[1]
    below, above = below & (c.advantages < 0), above & (c.advantages > 0)
    held = c.log_ratio.masked_fill(below, -c.epsilon[0]).masked_fill(above, c.epsilon[1])
    number = c.counts.sum((0, -1), keepdim=True).clamp(min=1)
    mean = (held * c.counts).sum((0, -1), keepdim=True) / number
    return Terms((mean.exp() * c.advantages).expand_as(held), below, above)


def boundary(log_ratio: Tensor, advantages: Tensor, linear: Tensor) -> Terms:
    """A linear lower bound where `linear`, else the exponential of Jensen's inequality."""
    # the side that is not taken must not overflow, or its gradient is not a number
    ratio = (1 + log_ratio).where(linear, log_ratio.masked_fill(linear, 0.0).exp())
    nowhere = log_ratio.isnan() & False
    return Terms(ratio * advantages, nowhere, nowhere)


def dppo(c: Comparison) -> Terms:
    """Tokens whose probability moved too far, and away, have no term."""
    return _keep(c, _change(c) <= c.epsilon[0])


def flow_dppo(c: Comparison) -> Terms:
    """Steps whose mean moved too far, and away, have no term."""
    return _keep(c, c.step_kl().detach() < c.epsilon[0])


def cppo(c: Comparison) -> Terms:
    """As `dppo`, under the budget of a row's tokens."""
    change, counts = _change(c), c.counts
    number = counts.sum(-1, keepdim=True)
    later = (counts.cumsum(-1) - 1) / (number - 1).clamp(min=1)
    weight = (1 - (1 - LAST_WEIGHT) * later) * counts
    allowance = change.masked_fill(~counts, float("nan")).nanquantile(0.9, -1, keepdim=True)
    used = weight * change
    before = allowance.clamp(*ALLOWANCE) * (weight.cumsum(-1) - weight) - (used.cumsum(-1) - used)
    return _keep(c, used <= c.epsilon[0] + before.clamp(max=0))


def drpo(c: Comparison) -> Terms:
    """A quadratic price for the change of a token's probability."""
    ratio, nowhere = _unclipped(c).exp(), c.counts & False
    price = c.advantages.abs() * c.old.exp() * (ratio - 1).square() / (2 * c.epsilon[0])
    return Terms(ratio * c.advantages - price, nowhere, nowhere)


def _unclipped(c: Comparison) -> Tensor:
    return c.log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def _change(c: Comparison) -> Tensor:
    """How far the probability of each token has moved."""
    return (c.new.detach().exp() - c.old.exp()).abs()


def _keep(c: Comparison, near: Tensor) -> Terms:
    """r A of tokens that are `near` or move back; a term of 0 for the others."""
    log_ratio = _unclipped(c)
    far = ~near & (c.advantages * log_ratio.detach() > 0)
    values = (log_ratio.exp() * c.advantages).masked_fill(far, 0.0)
    return Terms(values, far & (c.advantages < 0), far & (c.advantages > 0))


class Surrogate(NamedTuple):
    """A row of `SURROGATES`. `by_action`: whether it reads the distribution of every action;
    `of_steps`: whether that is the Gaussian of a denoising step."""

    terms: Callable[[Comparison], Terms]
    by_action: bool = False
    of_steps: bool = False


SURROGATES = {
    "clipped": Surrogate(clipped),
    "cispo": Surrogate(cispo),
    "weighted": Surrogate(weighted),
    "dppo": Surrogate(dppo, by_action=True),
    "cppo": Surrogate(cppo, by_action=True),
    "drpo": Surrogate(drpo, by_action=True),
    "flow_dppo": Surrogate(flow_dppo, by_action=True, of_steps=True),
    "guard": Surrogate(guard, by_action=True, of_steps=True),
}
"""Surrogates by the name used in configurations; `geometric` and `boundary` come with an
aggregation and a bound."""
