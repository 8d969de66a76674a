"""Bounds: from log-probs of actions to the quantity whose ratio is formed.

A bound maps log-probs [K, B, L] and their passes to a `Quantity`: values [K', B, L'], and which
of them count. l_ki is the log-prob of token i in pass k, w_ki its weight.

    token      every l_ki by itself
    elbo       (1 / K) sum_ki w_ki l_ki, one value per rollout: a lower bound of its log-likelihood
    eubo       (1 / beta) sum_i log( (1 / K) sum_k w_ki exp(beta l_ki) ), an upper bound up to a
               constant (SPG, arXiv 2510.09541)
    sandwich   elbo where the advantage is not negative, else omega eubo + (1 - omega) elbo (SPG)
    additive   sum_i w_ki l_ki, one value per rollout and pass, so that passes can be trained on one
               after the other (BGPO, arXiv 2510.11683)

A new bound is a function, here or in its own file, a dataclass with its options where it has any,
and one line in `BOUNDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from mmrl.config import Settings, at_least
from mmrl.config.chosen import NoOptions
from mmrl.types import Passes

if TYPE_CHECKING:
    from torch import Tensor


class Quantity(NamedTuple):
    """What a bound makes of log-probs.

    `values` [K', B, L'] float32; `counts` [K', B, L'] bool, True where a value counts; `sizes`
    (broadcast to them), the number of response tokens in one value, None for one each; `linear`
    [1, B, 1] bool or None: where it is not None the surrogate is BGPO's, A (1 + d) in these
    rollouts and A exp(d) in the others, d the log-ratio.
    """

    values: Tensor
    counts: Tensor
    sizes: Tensor | None = None
    linear: Tensor | None = None


class Bound(NamedTuple):
    """A row of `BOUNDS`.

    `compute(logprobs, passes, config, advantages)`: `config` has the options of the bound's
    `Config`, `advantages` [1, B, 1] float32 are None where only the counts are needed.
    `pass_by_pass`: whether each value belongs to one pass.
    """

    compute: Callable[[Tensor, Passes, Any, Tensor | None], Quantity]
    Config: type = NoOptions
    pass_by_pass: bool = False

    def __call__(
        self, logprobs: Tensor, passes: Passes, config: Any = None, advantages: Tensor | None = None
    ) -> Quantity:
        """The quantity of log-probs [K, B, L], see `compute`."""
        return self.compute(logprobs, passes, config, advantages)


@dataclass(kw_only=True)
class UpperBoundConfig(Settings):
    """Options of bounds with an upper bound."""

    eubo_beta: Annotated[float, at_least(1)] = 1.5
    """Exponent of the upper bound."""


@dataclass(kw_only=True)
class SandwichConfig(UpperBoundConfig):
    """Options of the sandwich."""

    eubo_weight: Annotated[float, at_least(0, up_to=1)] = 0.5
    """Share of the upper bound where the advantage is negative."""


def token(logprobs: Tensor, passes: Passes, *_: Any) -> Quantity:
    """Every scored token by itself."""
    return Quantity(logprobs, passes.scored)


def elbo(logprobs: Tensor, passes: Passes, *_: Any) -> Quantity:
    """(1 / K) sum over passes and tokens of weight x log-prob, one value per rollout."""
    total = (logprobs * passes.weight).sum(-1, keepdim=True).mean(0, keepdim=True)
    return _per_rollout(total, passes)


def eubo(logprobs: Tensor, passes: Passes, config: UpperBoundConfig, *_: Any) -> Quantity:
    """The upper bound, summed over the tokens that were scored with a weight in any pass."""
    weighted = passes.scored & (passes.weight > 0)
    # log-sum-exp over passes; a pass that does not score a token adds nothing to it
    exponents = config.eubo_beta * logprobs + passes.weight.clamp(min=1e-30).log()
    total = exponents.masked_fill(~weighted, -1e30).logsumexp(0)
    mean = total - passes.weight.new_tensor(float(len(passes))).log()
    values = (mean.masked_fill(~weighted.any(0), 0.0) / config.eubo_beta).sum(-1)
    return _per_rollout(values[None, :, None], passes)


def sandwich(
    logprobs: Tensor, passes: Passes, config: SandwichConfig, advantages: Tensor | None
) -> Quantity:
    """The lower bound where the advantage is not negative, mostly the upper one elsewhere."""
    lower = elbo(logprobs, passes)
    if advantages is None:
        return lower
    upper = eubo(logprobs, passes, config)
    mixed = config.eubo_weight * upper.values + (1 - config.eubo_weight) * lower.values
    return lower._replace(values=lower.values.where(advantages >= 0, mixed))


def additive(
    logprobs: Tensor, passes: Passes, config: NoOptions, advantages: Tensor | None
) -> Quantity:
    """One estimate of the evidence bound per pass."""
    values = (logprobs * passes.weight).sum(-1, keepdim=True)
    counts = passes.scored.any(-1, keepdim=True)
    linear = None if advantages is None else advantages >= 0
    return Quantity(values, counts, passes.tokens[None, :, None], linear)


def _per_rollout(values: Tensor, passes: Passes) -> Quantity:
    counts = passes.scored.any(-1, keepdim=True).any(0, keepdim=True)
    return Quantity(values, counts, passes.tokens[None, :, None])


BOUNDS = {
    "token": Bound(token, pass_by_pass=True),
    "elbo": Bound(elbo),
    "eubo": Bound(eubo, UpperBoundConfig),
    "sandwich": Bound(sandwich, SandwichConfig),
    "additive": Bound(additive, pass_by_pass=True),
}
"""Bounds by the name used in configurations."""
