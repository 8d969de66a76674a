"""Bounds: from log-probs of hidden tokens to the quantity whose ratio is formed.

A bound maps log-probs [K, B, L] and their passes to `Quantity`: values [K', B, L'] with the mask of
those that count. `token` keeps every scored token of every pass; `elbo` sums the weighted scores of
a rollout over its passes into one number, the Monte-Carlo evidence bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from mmrl.types import Passes


class Quantity(NamedTuple):
    """`values` [K', B, L'] float32 and `counts` [K', B, L'] bool, True where a value counts."""

    values: Tensor
    counts: Tensor


def token(logprobs: Tensor, passes: Passes) -> Quantity:
    """Every scored token by itself."""
    return Quantity(logprobs, passes.scored)


def elbo(logprobs: Tensor, passes: Passes) -> Quantity:
    """(1 / K) sum over passes and tokens of weight x log-prob, one value per rollout."""
    total = (logprobs * passes.weight).sum(-1, keepdim=True).mean(0, keepdim=True)
    return Quantity(total, passes.scored.any(-1, keepdim=True).any(0, keepdim=True))


BOUNDS: dict[str, Callable[[Tensor, Passes], Quantity]] = {"token": token, "elbo": elbo}
