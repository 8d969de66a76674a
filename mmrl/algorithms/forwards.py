"""How many forwards a method costs: per rollout and inner iteration, in passes over its canvas."""

from math import ceil
from typing import NamedTuple

from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.generation.kinds import STRATEGIES


class Forwards(NamedTuple):
    """Forwards with gradient (`new`), and without: of the policy that sampled (`old`) and of the
    reference policy. `value`: of a value model, half of them with gradient. `entropy`: of the
    policy that sampled, over all passes, where only its most uncertain tokens are trained on."""

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
    method: AlgorithmConfig,
    steps: int,
    length: int,
    num_mini_batches: int = 1,
    block_size: int | None = None,
) -> Forwards:
    """The forwards of a rollout in one inner iteration of `num_mini_batches` optimiser steps, every
    branch of a guided one counted; the rollout has so many denoising `steps`, and `length` response
    positions that count.

    Exact for strategies that draw (but for the empty complement of a full draw, which costs none);
    with an order of writing the most there can be, reached when every denoising step writes
    something that counts. `block_size`: see `passes_per_rollout`."""
    passes = passes_per_rollout(method, steps, length, block_size)
    each = passes * method.guidance.branches
    scored = method.needs_old(num_mini_batches) + method.measures_groups(num_mini_batches)
    measured = _planned(method, steps, length, block_size) * method.guidance.branches
    return Forwards(
        new=each,
        old=each * scored,
        reference=each * method.needs_reference,
        value=2 * passes * (method.value is not None),
        entropy=measured * (method.top_entropy_quantile < 1),
    )


def passes_per_rollout(
    method: AlgorithmConfig, steps: int, length: int, block_size: int | None = None
) -> int:
    """Passes over a rollout in one inner iteration: those with a token that is trained on.

    `block_size`: of a network whose attention is causal between blocks, which scores a slice of
    every block in one pass; None where all attend to all.
    """
    planned = _planned(method, steps, length, block_size)
    if method.top_entropy_quantile == 1:
        return planned
    scored = length if STRATEGIES[method.strategy].ordered else planned * length
    return max(1, min(planned, ceil(method.top_entropy_quantile * scored - 1e-9)))


def _planned(method: AlgorithmConfig, steps: int, length: int, block_size: int | None) -> int:
    """Passes of the strategy."""
    strategy = STRATEGIES[method.strategy]
    if block_size is not None and strategy.ordered:
        steps, length = max(1, steps * block_size // length), min(block_size, length)
    return strategy.number(method, steps, length)
