"""Aggregations: from log-ratios and advantages to terms, and from terms to one loss.

Each gives the weight of every counted entry, so that the loss is a plain weighted sum. The weights
use the counts of the whole batch (all ranks, all micro-batches), hence the gradient does not depend
on how the batch was cut.

    grpo      mean over a rollout's entries in a pass, then over rollouts and their passes
    dapo      mean over all entries of the batch
    dr_grpo   sum / (rollouts x response positions x passes)
    gspo      mean over a rollout's entries in all passes, then over rollouts (arXiv 2507.18071)
    gmpo      as gspo, of the terms of `surrogates.geometric`
    self_normalized    as gspo, with the slopes of `mmrl.algorithms.over_groups`

What is averaged are the terms of `mmrl.algorithms.surrogates`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.over_groups import OverGroup, share_of_weights
from mmrl.algorithms.surrogates import Comparison, Terms, geometric, row_weights

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BatchSize:
    """Counts over the whole batch of one inner iteration: rollouts, scored tokens of all passes,
    entries of the bound that count (the tokens, unless the bound sums them up), and the most
    response positions of a row.

    `rows` with an entry, and `token_rows` with a scored token, are summed over passes; None where
    every row has one in every pass. `passes` of the bound, and `token_passes`, are the most on a
    process; None: those at hand."""

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


class Aggregation(NamedTuple):
    """A row of `AGGREGATIONS`: the weights of entries, and the surrogate it needs, if any.

    `across_passes`: whether a term depends on several passes at once. `group`: what is measured of
    the rollouts of a group, of a loss over groups.
    """

    weights: Callable[[Tensor, BatchSize], Tensor]
    surrogate: Callable[[Comparison], Terms] | None = None
    across_passes: bool = False
    group: OverGroup | None = None


AGGREGATIONS = {
    "grpo": Aggregation(grpo),
    "dapo": Aggregation(dapo),
    "dr_grpo": Aggregation(dr_grpo),
    "gspo": Aggregation(gspo),
    "gmpo": Aggregation(gspo, geometric, across_passes=True),
    "self_normalized": Aggregation(gspo, group=OverGroup(row_weights, share_of_weights)),
}
"""Aggregations by the name used in configurations."""
