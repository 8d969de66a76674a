"""uniform: the evidence bound, exactly in expectation."""

import pytest
import torch

from tests.mmrl.estimators.exact import (
    assert_mean,
    drawn,
    estimates,
    evidence_bound,
    mean_over_orders,
)


def test_the_evidence_bound_is_the_mean_over_all_orders_of_writing() -> None:
    assert evidence_bound(4) == pytest.approx(mean_over_orders(4), rel=1e-5)


@pytest.mark.parametrize("num_draws", [1, 3])
def test_the_estimate_is_unbiased(num_draws: int) -> None:
    assert_mean(estimates("uniform", 3, num_draws=num_draws), evidence_bound(3))


def test_the_number_hidden_is_uniform_over_its_range() -> None:
    passes = drawn("uniform", 10, 3000, min_mask_rate=0.1, max_mask_rate=0.9)
    counts = passes.hidden[0].sum(-1).bincount(minlength=11)
    assert counts[0] == counts[10] == 0
    assert bool(((counts[1:10] - 3000 / 9).abs() < 80).all())
    exact = 10 / passes.hidden[0].sum(-1)
    torch.testing.assert_close(passes.weight[0].amax(-1), exact.float())
