"""Orders of writing: a completion is learned as it was recorded, or from left to right.

    slice s of S uniformly: the tokens of successive steps (trace) or places (left to right)
    hidden: the slice and everything after it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one step per slice a trace is the negative log-likelihood of the recorded rollout under its
sampler. Source: TraceRL (arXiv 2509.06949), whose shrinking of traces is `steps`; one slice at a
time instead of all as rows of a batch. With one token per slice, left to right is the exact
negative log-likelihood under left-to-right sampling, which JustGRPO scores (arXiv 2601.15165).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from mmrl.config import Settings, at_least
from mmrl.objectives.corruptions.corruption import Chance, Corruption, View, build_view

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class TraceConfig(Settings):
    """Hide a slice of the recorded steps, and everything written later."""

    where: ClassVar[str] = "objective.corruption"

    steps: Annotated[int, at_least(1)] = 1
    """Successive steps learned at once."""


@dataclass(kw_only=True)
class LeftToRightConfig(Settings):
    """Hide the tokens from one position on."""

    where: ClassVar[str] = "objective.corruption"

    tokens: Annotated[int, at_least(1)] = 1
    """Successive tokens learned at once."""


def corrupt_trace(order: Tensor, chance: Chance, config: TraceConfig) -> View:
    """See `Corruption`."""
    return _hide_slice(order.unique(return_inverse=True)[1] // config.steps, chance)


def corrupt_left_to_right(order: Tensor, chance: Chance, config: LeftToRightConfig) -> View:
    """See `Corruption`."""
    import torch

    return _hide_slice(torch.arange(len(order)) // config.tokens, chance)


def _hide_slice(slices: Tensor, chance: Chance) -> View:
    """Hide and score the tokens of one slice, of which each token has the number; hide all later
    ones."""
    count = int(slices.max()) + 1
    chosen = chance.pick(count)
    return build_view(slices >= chosen, (slices == chosen) * float(count))


TRACE = Corruption(corrupt_trace, TraceConfig, recorded=True)
LEFT_TO_RIGHT = Corruption(corrupt_left_to_right, LeftToRightConfig)
