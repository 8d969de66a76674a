"""Aggregations: from clipped terms per token to one loss, divided by global counts.

Each aggregation gives the weight of every counted entry, so that the loss is a plain weighted sum.
The weights use the counts of the whole batch (all ranks, all micro-batches), hence the gradient
does not depend on how the batch was cut.

    grpo      mean over rollouts of the mean over their entries
    dapo      mean over all entries of the batch
    dr_grpo   sum / (rollouts x response positions)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class BatchSize:
    """Counts over the whole batch of one inner iteration.

    Attributes:
        rollouts: rows of the batch.
        tokens: scored tokens of all passes.
        entries: entries of the bound that count; the tokens, unless the bound sums them up.
        longest: most response positions of a row.
    """

    rollouts: int
    tokens: int
    entries: int
    longest: int

    def per_token(self) -> BatchSize:
        """The same batch for terms that are always per token, such as the KL."""
        return replace(self, entries=self.tokens)


def grpo(counts: Tensor, size: BatchSize) -> Tensor:
    """[K, B, L] bool -> weights that average within a row and pass, then over rows and passes."""
    per_row = counts.sum(-1, keepdim=True).clamp(min=1)
    return counts / per_row / (size.rollouts * len(counts))


def dapo(counts: Tensor, size: BatchSize) -> Tensor:
    """Weights that average over all entries."""
    return counts / size.entries


def dr_grpo(counts: Tensor, size: BatchSize) -> Tensor:
    """Weights that divide by a constant, free of length bias (arXiv 2503.20783)."""
    return counts / (size.rollouts * size.longest * len(counts))


AGGREGATIONS: dict[str, Callable[[Tensor, BatchSize], Tensor]] = {
    "grpo": grpo,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
}
