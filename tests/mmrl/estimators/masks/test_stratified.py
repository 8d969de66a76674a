"""stratified: unbiased as uniform is, with less spread."""

import torch

from tests.mmrl.estimators.exact import assert_mean, drawn, estimates, evidence_bound


def test_all_draws_of_one_iteration_are_unbiased() -> None:
    assert_mean(estimates("stratified", 3, rows=2000, num_draws=3), evidence_bound(3))


def test_all_iterations_together_are_unbiased() -> None:
    values = [
        estimates("stratified", 3, rows=1500, num_iterations=3, iteration=i) for i in range(3)
    ]
    assert_mean(torch.stack(values).mean(0), evidence_bound(3))


def test_levels_cover_their_range_evenly() -> None:
    counts = [
        drawn("stratified", 8, 20, num_draws=4, num_iterations=2, iteration=i).hidden.sum(-1)
        for i in range(2)
    ]
    # eight strata over eight numbers of positions: each number once per row
    together = torch.cat(counts).sort(0).values
    assert torch.equal(together, torch.arange(1, 9)[:, None].expand(8, 20))
