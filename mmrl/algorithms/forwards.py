"""How many forwards a method costs: per rollout and inner iteration, in passes over its canvas."""

from math import ceil
from typing import NamedTuple

from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.estimators import MASKS


class Forwards(NamedTuple):
    """Forwards with gradient (`new`), and without: of the policy that sampled (`old`) and of the
    reference policy. `value`: of a value model with a copied backbone, half of them with gradient;
    a head on the policy shares `new` and `old`. `entropy`: of the policy that sampled, over all
    masks, where only its most uncertain tokens are trained on."""

    new: int
    old: int
    reference: int
    value: int = 0
    entropy: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)

    @property
    def backward(self) -> int:
        """Those with gradient."""
        return self.new + self.value // 2


def count_forwards(
    row: AlgorithmConfig,
    steps: int,
    length: int,
    num_mini_batches: int = 1,
    block_size: int | None = None,
) -> Forwards:
    """The forwards of a rollout in one inner iteration, every side of a guided one counted.

    Exact for strategies that draw (but for the empty complement of a full mask, which costs none);
    with an order of writing the most there can be, reached when every denoising step writes
    something that counts.

    Args:
        row: the method.
        steps: denoising steps of the rollout.
        length: response positions that count.
        num_mini_batches: optimiser steps of an inner iteration.
        block_size: of a network whose attention is causal between blocks, see
            `passes_per_rollout`.
    """
    passes = passes_per_rollout(row, steps, length, block_size)
    needs_old = row.needs_old(num_mini_batches)
    sides = passes * row.guidance.sides
    uncertain = row.top_entropy_quantile < 1
    planned = _planned(row, steps, length, block_size) * row.guidance.sides
    copied = row.value is not None and row.value.backbone == "copy"
    return Forwards(
        sides,
        sides * needs_old,
        sides * row.needs_reference,
        2 * passes * copied,
        planned * uncertain,
    )


def passes_per_rollout(
    row: AlgorithmConfig, steps: int, length: int, block_size: int | None = None
) -> int:
    """Passes over a rollout in one inner iteration: those with a token that is trained on.

    Args:
        row: the method.
        steps: denoising steps of the rollout.
        length: response positions that count.
        block_size: of a network whose attention is causal between blocks, which scores a slice of
            every block in one pass; None where all attend to all.
    """
    planned = _planned(row, steps, length, block_size)
    if row.top_entropy_quantile == 1:
        return planned
    scored = length if MASKS[row.mask].ordered else planned * length
    return max(1, min(planned, ceil(row.top_entropy_quantile * scored - 1e-9)))


def _planned(row: AlgorithmConfig, steps: int, length: int, block_size: int | None) -> int:
    """Passes of the mask strategy."""
    strategy = MASKS[row.mask]
    if block_size is not None and strategy.ordered:
        steps, length = max(1, steps * block_size // length), min(block_size, length)
    return strategy.number(row, steps, length)
