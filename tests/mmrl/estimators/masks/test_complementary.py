"""complementary: each token once per pair, and the evidence bound in expectation."""

import pytest
import torch

from tests.mmrl.estimators.exact import assert_mean, drawn, estimates, evidence_bound


def test_a_pair_scores_every_token_exactly_once() -> None:
    passes = drawn("complementary", 6, 200, num_draws=2)
    for pair in (slice(0, 2), slice(2, 4)):
        assert bool((passes.scored[pair, :, 4:10].sum(0) == 1).all())


def test_with_the_full_pass_every_token_is_scored_twice() -> None:
    passes = drawn("complementary", 6, 50, include_full=True)
    assert len(passes) == 3
    assert bool((passes.scored[:, :, 4:10].sum(0) == 2).all())
    assert bool(passes.hidden[2, :, 4:10].all())


@pytest.mark.parametrize("include_full", [False, True])
def test_the_mean_over_a_pair_is_an_unbiased_evidence_bound(include_full: bool) -> None:
    values = estimates("complementary", 4, rows=1500, include_full=include_full)
    assert_mean(values, evidence_bound(4))


def test_both_halves_keep_to_a_symmetric_range_of_rates() -> None:
    counts = drawn("complementary", 10, 300, min_mask_rate=0.2, max_mask_rate=0.8).hidden.sum(-1)
    assert int(counts.min()) == 2 and int(counts.max()) == 8
    assert torch.equal(counts.sum(0), torch.full((300,), 10))
