"""quadrature: Gauss nodes make the integral over the level exact."""

import pytest
import torch

from mmrl.estimators.masks.levels import nodes
from mmrl.estimators.masks.strategy import RateRangeConfig
from tests.mmrl.estimators.exact import assert_mean, drawn, estimates, evidence_bound, table


def at_rate(n: int, t: float) -> float:
    """(1 / t) times the expected sum of scores when each position is hidden with probability t."""
    total = 0.0
    for mask in range(1, 2**n):
        size = mask.bit_count()
        total += t ** (size - 1) * (1 - t) ** (n - size) * float(table(n)[mask].sum())
    return total


@pytest.mark.parametrize(("n", "number"), [(2, 1), (4, 2), (4, 3)])
def test_k_nodes_are_exact_up_to_twice_as_many_positions(n: int, number: int) -> None:
    total = sum(share * at_rate(n, t) for t, share in nodes(RateRangeConfig(num_draws=number)))
    assert total == pytest.approx(evidence_bound(n), rel=1e-5)


def test_the_estimate_is_unbiased() -> None:
    assert_mean(estimates("quadrature", 3, rows=3000, num_draws=2), evidence_bound(3))


def test_a_pass_hides_at_the_rate_of_its_node_in_all_rows() -> None:
    passes = drawn("quadrature", 8, 1500, num_draws=2)
    rates = passes.hidden[..., 4:12].float().mean((1, 2))
    expected = torch.tensor([t for t, _ in nodes(RateRangeConfig(num_draws=2))])
    assert bool(((rates - expected).abs() < 0.03).all())
