"""Aggregations: from log-ratios and advantages to terms, and from terms to one loss.

Each gives the weight of every counted entry, so that the loss is a plain weighted sum. The weights
use the counts of the whole batch (all ranks, all micro-batches), hence the gradient does not depend
on how the batch was cut.

    grpo      mean over a rollout's entries in a pass, then over rollouts and their passes
    dapo      mean over all entries of the batch
    dr_grpo   sum / (rollouts x response positions x passes)
    gspo      mean over a rollout's entries in all passes, then over rollouts (arXiv 2507.18071)
    gmpo      as gspo, of the terms of `geometric`

The terms that are averaged, the surrogate of the objective:

    clipped     min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), PPO (arXiv 1707.06347) with a
                separate upper range (DAPO, arXiv 2503.14476)
    geometric   A exp(mean of a row's clipped log-ratios), each clipped to [-eps_low, eps_high] on
                the side where it gains: GMPO (arXiv 2507.20673). Every entry holds the row's value
    boundary    A (1 + d) or A exp(d), never above A r: BGPO (arXiv 2510.11683), without a clip
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BatchSize:
    """Counts over the whole batch of one inner iteration.

    Attributes:
        rollouts: rows of the batch.
        tokens: scored tokens of all passes.
        entries: entries of the bound that count; the tokens, unless the bound sums them up.
        longest: most response positions of a row.
        rows: rows with an entry, summed over passes; None where every row has one in every pass.
        token_rows: rows with a scored token, summed over passes; None as above.
        passes: most passes of the bound on a process; None: those at hand.
        token_passes: most passes on a process; None as above.
    """

    rollouts: int
    tokens: int
    entries: int
    longest: int
    rows: int | None = None
    token_rows: int | None = None
    passes: int | None = None
    token_passes: int | None = None

    @staticmethod
    def over_processes(counts: Sequence[Sequence[int]]) -> BatchSize:
        """The batch of all processes, from the fields of each process's own."""
        largest = ("longest", "passes", "token_passes")
        columns = zip(fields(BatchSize), zip(*counts, strict=True), strict=True)
        whole = {f.name: max(own) if f.name in largest else sum(own) for f, own in columns}
        return BatchSize(**{**whole, "rollouts": max(1, whole["rollouts"])})

    def per_token(self) -> BatchSize:
        """The same batch for terms that are always per token, such as the KL."""
        return replace(self, entries=self.tokens, rows=self.token_rows, passes=self.token_passes)

    def rows_of(self, passes: int) -> int:
        """Rows with an entry over all passes."""
        return self.rollouts * passes if self.rows is None else max(1, self.rows)


def grpo(counts: Tensor, size: BatchSize) -> Tensor:
    """[K, B, L] bool -> weights that average within a row and pass, then over rows and passes."""
    per_row = counts.sum(-1, keepdim=True).clamp(min=1)
    return counts / per_row / size.rows_of(len(counts))


def dapo(counts: Tensor, size: BatchSize) -> Tensor:
    """Weights that average over all entries."""
    return counts / max(1, size.entries)


def dr_grpo(counts: Tensor, size: BatchSize) -> Tensor:
    """Weights that divide by a constant, free of length bias (arXiv 2503.20783)."""
    passes = len(counts) if size.passes is None else size.passes
    return counts / (size.rollouts * size.longest * passes)


def gspo(counts: Tensor, size: BatchSize) -> Tensor:
    """Weights that average over all of a row's entries, then over rows."""
    return counts / counts.sum((0, -1), keepdim=True).clamp(min=1) / size.rollouts


class Terms(NamedTuple):
    """`values` [K, B, L] to maximise, and where a ratio is clipped from `below` and `above`."""

    values: Tensor
    below: Tensor
    above: Tensor


def clipped(
    log_ratio: Tensor, counts: Tensor, advantages: Tensor, epsilon: tuple[float, float]
) -> Terms:
    """PPO's pessimistic minimum, entry by entry."""
    ratio = log_ratio.exp()
    low, high = 1 - epsilon[0], 1 + epsilon[1]
    values = (ratio * advantages).minimum(ratio.clamp(low, high) * advantages)
    return Terms(values, (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0))


def geometric(
    log_ratio: Tensor, counts: Tensor, advantages: Tensor, epsilon: tuple[float, float]
) -> Terms:
    """The geometric mean of a row's clipped ratios over all its passes, times the advantage."""
    below, above = log_ratio < -epsilon[0], log_ratio > epsilon[1]
    below, above = below & (advantages < 0), above & (advantages > 0)
    held = log_ratio.masked_fill(below, -epsilon[0]).masked_fill(above, epsilon[1])
    number = counts.sum((0, -1), keepdim=True).clamp(min=1)
    mean = (held * counts).sum((0, -1), keepdim=True) / number
    return Terms((mean.exp() * advantages).expand_as(log_ratio), below, above)


def boundary(log_ratio: Tensor, advantages: Tensor, linear: Tensor) -> Terms:
    """A linear lower bound where `linear` [B], else the exponential of Jensen's inequality."""
    rows = linear[None, :, None]
    # the side that is not taken must not overflow, or its gradient is not a number
    ratio = (1 + log_ratio).where(rows, log_ratio.masked_fill(rows, 0.0).exp())
    nowhere = log_ratio.isnan() & False
    return Terms(ratio * advantages, nowhere, nowhere)


class Aggregation(NamedTuple):
    """A row of `AGGREGATIONS`: the weights of entries, and the surrogate of the terms.

    `across_passes`: whether a term depends on several passes at once.
    """

    weights: Callable[[Tensor, BatchSize], Tensor]
    surrogate: Callable[[Tensor, Tensor, Tensor, tuple[float, float]], Terms] = clipped
    across_passes: bool = False


AGGREGATIONS = {
    "grpo": Aggregation(grpo),
    "dapo": Aggregation(dapo),
    "dr_grpo": Aggregation(dr_grpo),
    "gspo": Aggregation(gspo),
    "gmpo": Aggregation(gspo, geometric, across_passes=True),
}
"""Aggregations by the name used in configurations."""
