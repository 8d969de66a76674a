"""Corruptions against their bounds, by enumeration of everything that chance can do."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from mmrl.objectives import corruptions
from mmrl.objectives.corruptions import CORRUPTIONS, Chance, View, draw_chance
from mmrl.objectives.scored_rows import build_pair_mask

N = 4
COSTS = torch.rand(N, 2**N, generator=Generator().manual_seed(0)) + 0.1
"""A cross-entropy for every token and every set of hidden tokens."""


def build(name: str, **options: Any) -> Callable[[Tensor, Chance], View]:
    kind = CORRUPTIONS[name]
    return lambda order, chance: kind.corrupt(order, chance, kind.Config(**options))


def cost(token: int, hidden: Sequence[int]) -> float:
    return float(COSTS[token, sum(2**j for j in hidden)])


def loss(view: View) -> float:
    """Sum of weight times cost; a copy sees which copies of its block are hidden, and no others."""
    total = 0.0
    for column in view.weight.nonzero().flatten().tolist():
        assert view.hidden[column]
        seen = view.copy == view.copy[column]
        if view.copy[column]:
            seen &= view.block == view.block[column]
        hidden = view.index[seen & view.hidden].tolist()
        total += float(view.weight[column]) * cost(int(view.index[column]), hidden)
    return total


def chances(choices: int) -> Iterator[tuple[float, Chance]]:
    """Every outcome with its probability: choices, rates (by quadrature) and sets of tokens."""
    nodes, weights = np.polynomial.legendre.leggauss(6)  # exact for the polynomials met here
    for choice, (node, weight) in product(range(choices), zip(nodes, weights, strict=True)):
        rates = torch.full((N,), (node + 1) / 2)
        for chosen in product((True, False), repeat=N):
            tokens = torch.where(torch.tensor(chosen), 0.0, 1 - 1e-6)
            chance = Chance((choice + 0.5) / choices, rates, tokens)
            rate = float(chance.rate())
            odds = [rate if hit else 1 - rate for hit in chosen]
            yield float(weight) / 2 / choices * float(np.prod(odds)), chance


def expectation(
    name: str, order: Sequence[int] = range(N), choices: int = 1, **options: Any
) -> float:
    corrupt, written = build(name, **options), torch.tensor(list(order))
    return sum(odds * loss(corrupt(written, chance)) for odds, chance in chances(choices))


def any_order(tokens: Sequence[int], also_hidden: Sequence[int] = ()) -> float:
    """Mean over all orders of the negative log-likelihood of writing `tokens` one by one."""
    orders = list(permutations(tokens))
    return sum(chain([[j] for j in order], also_hidden) for order in orders) / len(orders)


def chain(slices: Sequence[Sequence[int]], also_hidden: Sequence[int] = ()) -> float:
    """Negative log-likelihood of writing slice after slice."""
    total = 0.0
    for n, part in enumerate(slices):
        hidden = [j for later in slices[n:] for j in later] + list(also_hidden)
        total += sum(cost(token, hidden) for token in part)
    return total


@pytest.fixture
def no_lowest_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruptions, "EPS", 0.0)


@pytest.mark.usefixtures("no_lowest_rate")
def test_random_masking_is_the_mean_over_all_orders() -> None:
    found = expectation("random", min_mask_rate=1e-9)
    assert found == pytest.approx(any_order(range(N)), rel=1e-4)


@pytest.mark.usefixtures("no_lowest_rate")
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_semi_autoregressive_masking_is_the_sum_of_the_bounds_of_blocks(size: int) -> None:
    blocks = [range(first, min(first + size, N)) for first in range(0, N, size)]
    expected = sum(any_order(block, range(block[-1] + 1, N)) for block in blocks)
    found = expectation("semi_ar", choices=len(blocks), block_size=size, min_mask_rate=1e-9)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.usefixtures("no_lowest_rate")
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_block_masking_is_the_sum_of_the_bounds_of_blocks_with_nothing_later(size: int) -> None:
    blocks = [range(first, min(first + size, N)) for first in range(0, N, size)]
    found = expectation("block", block_size=size)
    assert found == pytest.approx(sum(map(any_order, blocks)), rel=1e-4)


@pytest.mark.parametrize(
    ("order", "steps", "slices"),
    [
        ([5, 0, 5, 9], 1, [[1], [0, 2], [3]]),
        ([5, 0, 5, 9], 2, [[0, 1, 2], [3]]),
        ([3, 2, 1, 0], 1, [[3], [2], [1], [0]]),
    ],
)
def test_a_trace_is_the_likelihood_of_writing_in_the_recorded_order(
    order: list[int], steps: int, slices: list[list[int]]
) -> None:
    found = expectation("trace", order, choices=len(slices), steps=steps)
    assert found == pytest.approx(chain(slices), rel=1e-4)


@pytest.mark.parametrize(
    ("steps", "blocks"), [(1, [[[1], [0]], [[2], [3]]]), (2, [[[0, 1]], [[2, 3]]])]
)
def test_a_block_trace_is_the_likelihood_of_each_block_in_its_order_with_nothing_later(
    steps: int, blocks: list[list[list[int]]]
) -> None:
    corrupt, order = build("block_trace", block_size=2, steps=steps), torch.tensor([5, 0, 5, 9])
    rates = [torch.tensor([a, b, 0, 0]) for a, b in product((0.0, 0.6), repeat=2)]
    found = [loss(corrupt(order, Chance(0.0, each, torch.zeros(N)))) for each in rates]
    assert sum(found) / 4 == pytest.approx(sum(map(chain, blocks)), rel=1e-5)


@pytest.mark.parametrize(("tokens", "slices"), [(1, [[0], [1], [2], [3]]), (3, [[0, 1, 2], [3]])])
def test_left_to_right_is_the_chain_rule_whatever_was_recorded(
    tokens: int, slices: list[list[int]]
) -> None:
    found = expectation("left_to_right", [3, 2, 1, 0], choices=len(slices), tokens=tokens)
    assert found == pytest.approx(chain(slices), rel=1e-4)


def test_copies_see_clean_earlier_blocks_and_their_own() -> None:
    block = torch.tensor([[-1, -1, -1, 0, 0, 1, 1, 0, 0, 1, 1]])
    copy = torch.arange(11)[None] >= 7
    mask = build_pair_mask(torch.ones_like(block), block, copy)[0, 0].int()
    rows = ["".join(map(str, row)) for row in mask.tolist()]
    assert rows[:3] == ["11100000000"] * 3
    assert rows[3:7] == ["11111000000"] * 2 + ["11111110000"] * 2
    assert rows[7:] == ["11100001100"] * 2 + ["11111000011"] * 2


@pytest.mark.parametrize("name", ["random", "semi_ar"])
def test_mean_weights_make_the_loss_the_mean_over_what_is_hidden(name: str) -> None:
    options = {"block_size": 3} if name == "semi_ar" else {}
    corrupt = build(name, weights="mean", **options)
    for seed in range(20):
        view = corrupt(torch.arange(8), draw_chance(8, Generator().manual_seed(seed)))
        scored = view.weight > 0
        assert view.hidden[scored].all() and scored.any() == (view.weight.sum() > 0)
        if scored.any():
            # divided by the 8 tokens of the completion, the mean
            expected = torch.full_like(view.weight[scored], 8 / int(scored.sum()))
            torch.testing.assert_close(view.weight[scored], expected)
