"""Bounds: from log-probs of hidden tokens to the quantity whose ratio is formed.

A bound maps log-probs [K, B, L] and their passes to a `Quantity`: values [K', B, L'] with the mask
of those that count. l_ki is the log-prob of token i in pass k, w_ki its weight.

    token      every l_ki by itself
    elbo       (1 / K) sum_ki w_ki l_ki, one value per rollout: a lower bound of its log-likelihood
    eubo       (1 / beta) sum_i log( (1 / K) sum_k w_ki exp(beta l_ki) ), an upper bound up to a
               constant (SPG, arXiv 2510.09541)
    sandwich   elbo where the advantage is not negative, else omega eubo + (1 - omega) elbo (SPG)
    additive   sum_i w_ki l_ki, one value per rollout and pass, so that passes can be trained on one
               after the other (BGPO, arXiv 2510.11683)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mmrl.types import Passes

if TYPE_CHECKING:
    from torch import Tensor


class Quantity(NamedTuple):
    """What a bound makes of log-probs.

    `values` [K', B, L'] float32; `counts` [K', B, L'] bool, True where a value counts; `sizes`
    (broadcast to them), the response tokens one value stands for, None for one each; `linear` [B]
    bool or None: where it is not None the surrogate is BGPO's, A (1 + d) in these rollouts and
    A exp(d) in the others, d the log-ratio.
    """

    values: Tensor
    counts: Tensor
    sizes: Tensor | None = None
    linear: Tensor | None = None


@dataclass(frozen=True)
class View:
    """What a bound may know besides the log-probs.

    Attributes:
        advantages: [B] float32, or None where only the counts are asked for.
        eubo_beta: exponent beta of the upper bound, at least 1.
        eubo_weight: share omega of the upper bound in the sandwich.
    """

    advantages: Tensor | None = None
    eubo_beta: float = 1.0
    eubo_weight: float = 0.5


PLAIN = View()


def token(logprobs: Tensor, passes: Passes, view: View = PLAIN) -> Quantity:
    """Every scored token by itself."""
    return Quantity(logprobs, passes.scored)


def elbo(logprobs: Tensor, passes: Passes, view: View = PLAIN) -> Quantity:
    """(1 / K) sum over passes and tokens of weight x log-prob, one value per rollout."""
    total = (logprobs * passes.weight).sum(-1, keepdim=True).mean(0, keepdim=True)
    return _per_rollout(total, passes)


def eubo(logprobs: Tensor, passes: Passes, view: View = PLAIN) -> Quantity:
    """The upper bound, summed over the tokens that were hidden with a weight in any pass."""
    import torch

    seen = (passes.scored & (passes.weight > 0)).any(0)
    # log-sum-exp over passes; a pass that does not score a token adds nothing to it
    exponents = view.eubo_beta * logprobs + passes.weight.clamp(min=1e-30).log()
    exponents = exponents.masked_fill(~passes.scored | (passes.weight <= 0), -1e30)
    mean = exponents.logsumexp(0) - torch.tensor(float(len(passes))).log()
    total = (mean.masked_fill(~seen, 0.0) / view.eubo_beta).sum(-1)
    return _per_rollout(total[None, :, None], passes)


def sandwich(logprobs: Tensor, passes: Passes, view: View = PLAIN) -> Quantity:
    """The lower bound for what is to become likelier, mostly the upper one for the rest."""
    lower, upper = elbo(logprobs, passes, view), eubo(logprobs, passes, view)
    if view.advantages is None:
        return lower
    mixed = view.eubo_weight * upper.values + (1 - view.eubo_weight) * lower.values
    values = lower.values.where((view.advantages >= 0)[None, :, None], mixed)
    return lower._replace(values=values)


def additive(logprobs: Tensor, passes: Passes, view: View = PLAIN) -> Quantity:
    """One estimate of the evidence bound per pass."""
    values = (logprobs * passes.weight).sum(-1, keepdim=True)
    counts = passes.scored.any(-1, keepdim=True)
    linear = None if view.advantages is None else view.advantages >= 0
    return Quantity(values, counts, passes.tokens[None, :, None], linear)


def _per_rollout(values: Tensor, passes: Passes) -> Quantity:
    counts = passes.scored.any(-1, keepdim=True).any(0, keepdim=True)
    return Quantity(values, counts, passes.tokens[None, :, None])


BOUNDS: dict[str, Callable[..., Quantity]] = {
    "token": token,
    "elbo": elbo,
    "eubo": eubo,
    "sandwich": sandwich,
    "additive": additive,
}
READS: dict[str, tuple[str, ...]] = {
    "eubo": ("eubo_beta",),
    "sandwich": ("eubo_beta", "eubo_weight"),
}
"""Settings of their own that bounds look at."""
PASS_BY_PASS = frozenset({"token", "additive"})
"""Bounds whose values belong to one pass each."""
