"""Diversity of groups of completions, and its means over the groups of all processes.

Completions are described once; the diversity of a group and the difference of each completion to
the others come from these descriptions. A group has its pairs on the process that sampled it; means
are over all groups, in the order of the prompts, so they do not depend on the number of processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object

from mmrl.rollouts.diversity.metrics import Completions, DiversityMetric

Pairs = dict[tuple[int, int], Sequence[float]]
"""Values of each pair of a group."""


@dataclass
class Diversity:
    """Diversity of some groups.

    `groups`: by name of a value, that of each group; NaN where it is not known, as for a group of
    one completion.
    """

    groups: dict[str, list[float]] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """`diversity/<value>`, a mean over groups; what is known of none is left out."""
        means = {f"diversity/{name}": _known_mean(values) for name, values in self.groups.items()}
        return {name: mean for name, mean in means.items() if not math.isnan(mean)}

    def gather(self) -> Diversity:
        """The diversity of the groups of all processes, which all call this."""
        parts = gather_object([self])
        return Diversity({n: [v for part in parts for v in part.groups[n]] for n in self.groups})


def describe(metrics: Sequence[DiversityMetric], completions: Completions) -> list[list[Any]]:
    """What each metric compares of each completion."""
    return [list(metric.describe(completions)) for metric in metrics]


def measure(
    metrics: Sequence[DiversityMetric], described: Sequence[Sequence[Any]], size: int
) -> Diversity:
    """Measure the diversity of consecutive groups.

    Args:
        metrics: what is measured.
        described: of each metric, the descriptions of the completions, group by group.
        size: of a group.
    """
    found: dict[str, list[float]] = {}
    for metric, each in zip(metrics, described, strict=True):
        groups = [[*pairs.values()] for pairs in _compare_groups(metric, each, size)]
        for n, value in enumerate(metric.values):
            found[value] = [_known_mean(pair[n] for pair in group) for group in groups]
    return Diversity(found)


def differences(
    metrics: Sequence[DiversityMetric], described: Sequence[Sequence[Any]], size: int
) -> dict[str, list[float]]:
    """By name of a value, the mean difference of each completion to the others of its group, NaN
    where it is not known; arguments as of `measure`. Their mean over a group is its diversity where
    all are known."""
    found: dict[str, list[float]] = {}
    for metric, each in zip(metrics, described, strict=True):
        groups = list(_compare_groups(metric, each, size))
        for n, value in enumerate(metric.values):
            found[value] = [
                _known_mean(values[n] for pair, values in pairs.items() if own in pair)
                for pairs in groups
                for own in range(size)
            ]
    return found


def _compare_groups(
    metric: DiversityMetric, described: Sequence[Any], size: int
) -> Iterator[Pairs]:
    for start in range(0, len(described), size):
        pairs = combinations(range(size), 2)
        yield {(i, j): metric.compare(described[start + i], described[start + j]) for i, j in pairs}


def _known_mean(values: Iterable[float]) -> float:
    """The mean of what is known, NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan
