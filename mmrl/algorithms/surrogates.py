"""Surrogates: from the log-probs of two policies and advantages to the terms that are maximised.

With r the ratio at the chosen level and A the advantage:

    clipped     min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), PPO (arXiv 1707.06347) with a
                separate upper range (DAPO, arXiv 2503.14476)
    cispo       A min(r, 1 + eps_high) log p, the ratio without gradient: no token is left without
                one (CISPO of MiniMax-M1, arXiv 2506.13585)
    dppo, cppo, drpo, flow_dppo   see `mmrl.algorithms.divergence`
    guard       clipped for r = exp(s (log r' + b)) and divided by -dt: the ratio r' of a denoising
                step with deviation s, and its bias b = mean[(mu - mu_old)^2] / (2 s^2), by which
                log r' is below 0 on average (GRPO-Guard, arXiv 2510.22319)
    geometric   A exp(mean of a row's clipped log-ratios), each clipped to [-eps_low, eps_high] on
                the side where it gains: GMPO (arXiv 2507.20673). Every entry holds the row's value
    boundary    A (1 + d) or A exp(d), never above A r: BGPO (arXiv 2510.11683), without a clip
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.divergence import cppo, dppo, drpo, flow_dppo
from mmrl.algorithms.terms import Comparison, Terms

if TYPE_CHECKING:
    from torch import Tensor


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


def geometric(c: Comparison) -> Terms:
    """The geometric mean of a row's clipped ratios over all its passes, times the advantage."""
    below, above = c.log_ratio < -c.epsilon[0], c.log_ratio > c.epsilon[1]
    below, above = below & (c.advantages < 0), above & (c.advantages > 0)
    held = c.log_ratio.masked_fill(below, -c.epsilon[0]).masked_fill(above, c.epsilon[1])
    number = c.counts.sum((0, -1), keepdim=True).clamp(min=1)
    mean = (held * c.counts).sum((0, -1), keepdim=True) / number
    return Terms((mean.exp() * c.advantages).expand_as(held), below, above)


def boundary(log_ratio: Tensor, advantages: Tensor, linear: Tensor) -> Terms:
    """A linear lower bound where `linear` [B], else the exponential of Jensen's inequality."""
    rows = linear[None, :, None]
    # the side that is not taken must not overflow, or its gradient is not a number
    ratio = (1 + log_ratio).where(rows, log_ratio.masked_fill(rows, 0.0).exp())
    nowhere = log_ratio.isnan() & False
    return Terms(ratio * advantages, nowhere, nowhere)


class Surrogate(NamedTuple):
    """A row of `SURROGATES`. `by_action`: whether it reads the distribution of every action;
    `of_steps`: whether that is the Gaussian of a denoising step."""

    terms: Callable[[Comparison], Terms]
    by_action: bool = False
    of_steps: bool = False


SURROGATES = {
    "clipped": Surrogate(clipped),
    "cispo": Surrogate(cispo),
    "dppo": Surrogate(dppo, by_action=True),
    "cppo": Surrogate(cppo, by_action=True),
    "drpo": Surrogate(drpo, by_action=True),
    "flow_dppo": Surrogate(flow_dppo, by_action=True, of_steps=True),
    "guard": Surrogate(guard, by_action=True, of_steps=True),
}
"""Surrogates by the name used in configurations; `geometric` and `boundary` come with an
aggregation and a bound."""
