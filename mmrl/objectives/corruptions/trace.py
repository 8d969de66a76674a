"""Trace: the completion is learned in the order of writing that the data records.

    slice s of S uniformly: the tokens of `steps` successive denoising steps
    hidden: the slice and everything written after it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one step per slice this is the negative log-likelihood of the recorded rollout under its
sampler. Source: TraceRL (arXiv 2509.06949), whose shrinking of traces is `steps`; one slice at a
time instead of all as rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import Chance, Corruption, View, build_view

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class TraceConfig:
    """Hide a slice of the recorded steps, and everything written later."""

    steps: int = 1
    """Successive steps learned at once."""

    def __post_init__(self) -> None:
        check(self.steps >= 1, "objective.corruption.steps", self.steps, "at least 1")


def corrupt(order: Tensor, chance: Chance, config: TraceConfig) -> View:
    """See `Corruption`."""
    return hide_slice(order, config.steps, chance)


def hide_slice(order: Tensor, steps: int, chance: Chance) -> View:
    """Hide and score a slice of `steps` successive values of `order` [n]; hide all later ones."""
    rank = order.unique(return_inverse=True)[1] // steps
    count = int(rank.max()) + 1
    chosen = chance.pick(count)
    return build_view(rank >= chosen, (rank == chosen) * float(count))


TRACE = Corruption(corrupt, TraceConfig, recorded=True)
