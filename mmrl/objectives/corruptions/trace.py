"""Trace: the completion is written again in the order recorded in the data.

    slice s of S uniformly: the tokens of `steps` successive denoising steps
    hidden: the slice and everything written after it;  weight S within the slice

    E = sum_s sum_{j in slice s} CE_j(slices s, s+1, ..., S)

With one step per slice this is the negative log-likelihood of the recorded rollout under its
sampler. Source: TraceRL (arXiv 2509.06949), whose shrinking of traces is `steps`; one slice at a
time instead of all as rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import Chance, View, plain_view

if TYPE_CHECKING:
    from torch import Tensor


class Trace:
    """Hides one slice of the recorded steps and those after it."""

    recorded: ClassVar[bool] = True
    continued: ClassVar[bool] = True

    @dataclass(kw_only=True)
    class Config:
        """Options of `trace`."""

        steps: int = 1
        """Successive steps learned at once."""

        def __post_init__(self) -> None:
            check(self.steps >= 1, "objective.corruption.steps", self.steps, "at least 1")

    def __init__(self, config: Config) -> None:
        self.config = config

    def __call__(self, order: Tensor, chance: Chance) -> View:
        """See `Corruption`."""
        return sliced(order, self.config.steps, chance)


def sliced(order: Tensor, steps: int, chance: Chance) -> View:
    """The view of one slice of `steps` successive values of `order` [n]."""
    rank = order.unique(return_inverse=True)[1] // steps
    count = int(rank.max()) + 1
    chosen = chance.one_of(count)
    return plain_view(rank >= chosen, (rank == chosen) * float(count))
