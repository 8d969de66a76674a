"""Every strategy whose estimate has a known mean: exact sums over all masks or orders."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.strategies.levels import nodes
from mmrl.generation.masked.strategies.rates import keep_probability
from mmrl.generation.masked.strategies.strategy import RateRangeConfig
from tests.mmrl.estimators.exact import (
    assert_mean,
    drawn,
    estimates,
    evidence_bound,
    mean_over_orders,
    table,
)
from tests.mmrl.estimators.test_masks import behind, draw


def test_the_evidence_bound_is_the_mean_over_all_orders_of_writing() -> None:
    assert evidence_bound(4) == pytest.approx(mean_over_orders(4), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "n", "options"),
    [("uniform", 3, {}), ("uniform", 3, {"num_draws": 3}), ("stratified", 3, {"num_draws": 3})]
    + [("quadrature", 3, {"num_draws": 2}), ("complementary", 4, {})]
    + [("complementary", 4, {"include_full": True}), ("blockwise", 3, {"block_size": 8})],
)
def test_the_mean_is_the_evidence_bound(name: str, n: int, options: dict[str, Any]) -> None:
    assert_mean(estimates(name, n, rows=2500, **options), evidence_bound(n))


def test_all_iterations_of_stratified_masks_are_unbiased_together() -> None:
    values = [
        estimates("stratified", 3, rows=1500, num_iterations=3, iteration=i) for i in range(3)
    ]
    assert_mean(torch.stack(values).mean(0), evidence_bound(3))


@pytest.mark.parametrize("num_draws", [1, 3])
def test_blockwise_masks_estimate_the_sum_of_the_blocks_bounds(num_draws: int) -> None:
    exact = evidence_bound(4, (0, 1), later=0b1100) + evidence_bound(4, (2, 3))
    values = estimates("blockwise", 4, rows=1500, num_draws=num_draws, block_size=2)
    assert_mean(values, exact)


@pytest.mark.parametrize("iteration", [0, 2])
def test_random_masks_estimate_the_sum_over_all_masks_at_their_rate(iteration: int) -> None:
    n, rate = 3, 0.2 + 0.8 * (iteration + 1) / 4
    exact = 0.0
    for mask in range(1, 2**n):
        size = mask.bit_count()
        exact += rate**size * (1 - rate) ** (n - size) * float(table(n)[mask].sum())
    # a draw that hides nothing hides one position instead, each equally likely
    exact += (1 - rate) ** n * sum(float(table(n)[1 << i].sum()) for i in range(n)) / n
    options = {"min_mask_rate": 0.2, "iteration": iteration, "num_iterations": 4}
    assert_mean(estimates("random", n, **options), exact)


def test_ar_like_masks_estimate_the_sum_over_all_masks_at_their_rates() -> None:
    n, exact = 3, 0.0
    keep = keep_probability(torch.ones(1, n, dtype=torch.bool), 0.7)[0].tolist()
    for mask in range(2**n):
        hidden = [i for i in range(n) if mask >> i & 1]
        chance = 1.0
        for i in range(n):
            chance *= 1 - keep[i] if i in hidden else keep[i]
        exact += chance * sum(float(table(n)[mask][i]) / (1 - keep[i]) for i in hidden)
    options = {"min_mask_rate": 0.4, "iteration": 0, "num_iterations": 2}
    assert_mean(estimates("ar_like", n, **options), exact)


def test_full_masks_score_every_token_given_the_prompt_alone() -> None:
    torch.testing.assert_close(estimates("full", 4, rows=1), table(4)[-1].sum()[None])


def at_rate(n: int, t: float) -> float:
    """(1 / t) times the expected sum of scores when each position is hidden with probability t."""
    total = 0.0
    for mask in range(1, 2**n):
        size = mask.bit_count()
        total += t ** (size - 1) * (1 - t) ** (n - size) * float(table(n)[mask].sum())
    return total


@pytest.mark.parametrize(("n", "number"), [(2, 1), (4, 2), (4, 3)])
def test_k_nodes_of_quadrature_are_exact_up_to_twice_as_many_positions(n: int, number: int) -> None:
    total = sum(share * at_rate(n, t) for t, share in nodes(RateRangeConfig(num_draws=number)))
    assert total == pytest.approx(evidence_bound(n), rel=1e-5)


def test_stratified_levels_cover_their_range_evenly() -> None:
    counts = [
        drawn("stratified", 8, 20, num_draws=4, num_iterations=2, iteration=i).query.mask.sum(-1)
        for i in range(2)
    ]
    # eight strata over eight numbers of positions: each number once per row
    together = torch.cat(counts).sort(0).values
    assert torch.equal(together, torch.arange(1, 9)[:, None].expand(8, 20))


def test_a_complementary_pair_scores_every_token_once_and_a_full_pass_once_more() -> None:
    passes = drawn("complementary", 6, 200, num_draws=2)
    for pair in (slice(0, 2), slice(2, 4)):
        assert bool((passes.scored[pair, :, 4:10].sum(0) == 1).all())
    passes = drawn("complementary", 6, 50, include_full=True)
    assert len(passes) == 3 and bool(passes.query.mask[2, :, 4:10].all())
    assert bool((passes.scored[:, :, 4:10].sum(0) == 2).all())


def test_before_the_block_nothing_is_hidden_and_after_it_everything() -> None:
    passes = drawn("blockwise", 7, 60, num_draws=3, block_size=3)
    assert passes.blocks is not None
    block = (passes.blocks * passes.scored).amax(-1, keepdim=True)
    later = (passes.blocks > block) & (passes.blocks >= 0)
    earlier = (passes.blocks < block) & (passes.blocks >= 0)
    assert bool((passes.query.mask | ~later).all() and (~passes.query.mask | ~earlier).all())
    assert not bool((passes.scored & (passes.blocks != block)).any())
    # the draws of a row take every block in turn
    assert torch.equal(block[..., 0].sort(0).values, torch.arange(3)[:, None].expand(3, 60))


# which of 16 completion tokens MaskGRPO's trainer hides at three rates, after five prompt tokens,
# with one generator of seed 1234 over rows of 21
HIDDEN = {
    0.3: [".......##.#.####", ".........####.##"],
    0.625: ["...#.####.######", "..#.#.#.#####.##"],
    0.999: ["################", "################"],
}


@pytest.mark.parametrize(
    ("rate", "iteration", "num_iterations"), [(0.3, 2, 10), (0.625, 4, 8), (0.999, 0, 1)]
)
def test_ar_like_masks_are_mask_grpos(
    mmada_cases: dict[str, Tensor], rate: float, iteration: int, num_iterations: int
) -> None:
    tokens = mmada_cases["maskgrpo/remask/tokens"]
    response = ~mmada_cases["maskgrpo/remask/prompt"].expand(2, -1)
    canvas = MaskedCanvas(tokens, response, None, (0, 134656), 126336)
    seeds = [behind(1234, row * 21 + 5) for row in range(2)]
    passes = draw(canvas, seeds, "ar_like", iteration, num_iterations, min_mask_rate=0.0)
    rows = ["".join("#" if h else "." for h in row[5:]) for row in passes.query.mask[0].tolist()]
    assert rows == HIDDEN[rate]
