"""Figures of a table: means over seeds, gains, comparisons with a control, values of curves."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

Points = Sequence[tuple[float, float]]
"""(x, y) of a curve, in order of x."""


class Mean(NamedTuple):
    """A mean over seeds and its standard error, None of a single seed."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        return self.format("")

    def signed(self) -> str:
        """As text, with its sign."""
        return self.format("+")

    def format(self, sign: str) -> str:
        """As text, with three decimals."""
        error = "" if self.error is None else f" ± {self.error:.3f}"
        return f"{self.mean:{sign}.3f}{error}"


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """Mean of one value per seed, with its standard error over the seeds."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return Mean(fmean(values), error)


def errors_apart(gain: Mean, control: Mean) -> float | None:
    """Difference of two gains in standard errors of the difference; None where it has none."""
    if gain.error is None or control.error is None:
        return None
    error = math.hypot(gain.error, control.error)
    return (gain.mean - control.mean) / error if error else None


def value_at(points: Points, x: float) -> float:
    """The value of a curve at x, linear between its points; that of its nearest end outside."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1
    return points[-1][1]


def reached_by_all(curves: Sequence[Points]) -> float:
    """The largest x that every curve reached."""
    return min(points[-1][0] for points in curves)


def change_at(points: Points, x: float) -> float:
    """The value of a curve at x minus its first one."""
    return value_at(points, x) - points[0][1]
