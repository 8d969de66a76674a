"""Surrogates that hold back how far the distribution of an action moves, instead of its ratio.

With p and q the probabilities of a token under the policy and under the one that sampled, r = p / q
and D = |p - q|, the maximised term is

    dppo   A r where D <= eps or r moves back towards 1, else 0 (DPPO, arXiv 2602.04879)
    cppo   the same under a budget that the tokens of a row share (CPPO, arXiv 2606.10968)
    drpo   A r - |A| q (r - 1)^2 / (2 eps), without an edge (DRPO, arXiv 2606.09821)

and for a denoising step, with D the KL of its Gaussians per number of the latent (s its own
deviation, whatever the kernel),

    flow_dppo   A r where D < eps or r moves back towards 1, else 0 (Flow-DPPO, arXiv 2606.11025)

The budget: of a row's T counted tokens, from left to right in a pass, the t-th has the weight
w_t = 1 - (1 - `LAST_WEIGHT`) (t - 1) / (T - 1), and w_t D_t may reach

    min(eps, eps + a sum_{s<t} w_s - sum_{s<t} w_s D_s)

with a the 90th percentile of the row's D, held within `ALLOWANCE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.algorithms.terms import Comparison, Terms

if TYPE_CHECKING:
    from torch import Tensor

LAST_WEIGHT = 0.8
"""Weight of the last token's change of probability; the first token's is 1."""
ALLOWANCE = 0.02, 0.04
"""Range of what every token adds to the budget of those after it."""
LARGEST_LOG_RATIO = 20.0
"""Where a ratio that no range clips is held, so that it cannot overflow."""


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
