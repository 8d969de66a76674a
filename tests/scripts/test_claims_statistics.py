"""The figures of a table, against closed forms."""

import math

import pytest

from scripts.claims.statistics import (
    Mean,
    change_at,
    errors_apart,
    mean_over_seeds,
    reached_by_all,
    value_at,
)

CURVE = [(0.0, 0.2), (10.0, 0.4), (30.0, 0.8)]


def test_a_mean_has_its_standard_error_over_the_seeds() -> None:
    found = mean_over_seeds([0.1, 0.3, 0.5])
    assert found.mean == pytest.approx(0.3) and found.error == pytest.approx(0.2 / math.sqrt(3))
    assert str(found) == "0.300 ± 0.115" and found.signed() == "+0.300 ± 0.115"
    assert mean_over_seeds([0.25]) == (0.25, None)
    assert mean_over_seeds([0.25]).signed() == "+0.250"


def test_a_gain_is_compared_in_standard_errors_of_the_difference() -> None:
    assert errors_apart(Mean(0.3, 0.03), Mean(0.05, 0.04)) == pytest.approx(5)
    assert errors_apart(Mean(0.3, None), Mean(0.0, 0.1)) is None
    assert errors_apart(Mean(0.3, 0.0), Mean(0.0, 0.0)) is None


def test_values_of_a_curve_are_linear_between_its_points_and_constant_outside() -> None:
    assert [value_at(CURVE, x) for x in (-1, 0, 5, 10, 20, 99)] == pytest.approx(
        [0.2, 0.2, 0.3, 0.4, 0.6, 0.8]
    )
    assert change_at(CURVE, 20) == pytest.approx(0.4)
    assert value_at([(0.0, 0.1), (0.0, 0.5)], 0) == 0.1


def test_curves_are_compared_where_the_shortest_ends() -> None:
    assert reached_by_all([CURVE, [(0.0, 0.1), (12.5, 0.3)]]) == 12.5
