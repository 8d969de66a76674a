"""Diversity of groups of completions, and its means over the groups of all processes.

A group has its pairs on the process that sampled it; means are over all groups, in the order of the
prompts, and entropies over all completions, so they do not depend on the number of processes. The
entropy of labels with shares p_k among K kinds is normalised:

    H = -Σ_k p_k log p_k / log K
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

from accelerate.utils import gather_object

from mmrl.evaluation.diversity.metric import Completions, DiversityMetric


@dataclass
class Diversity:
    """Diversity of some groups.

    Attributes:
        groups: by name of a value, that of each group; NaN where it is not known, as for a group of
            one completion.
        labels: by name, how many completions have a label, without those of unknown label.
        kinds: by name, how many labels there are.
    """

    groups: dict[str, list[float]] = field(default_factory=dict)
    labels: dict[str, Counter[str]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """`diversity/<value>`, a mean over groups, and `diversity/<label>_entropy`; what is not
        known of any group is left out."""
        means = {
            f"diversity/{name}": fmean(known)
            for name, values in self.groups.items()
            if (known := [value for value in values if not math.isnan(value)])
        }
        return means | self.entropies()

    def entropies(self) -> dict[str, float]:
        """`diversity/<label>_entropy`, from 0 for one label to 1 for all equally often."""
        return {
            f"diversity/{name}_entropy": entropy(counts, self.kinds[name])
            for name, counts in self.labels.items()
            if counts
        }

    def gather(self) -> Diversity:
        """The diversity of the groups of all processes, which all call this."""
        parts = gather_object([self])
        return Diversity(
            {name: [v for part in parts for v in part.groups[name]] for name in self.groups},
            {name: sum((p.labels[name] for p in parts), Counter()) for name in self.labels},
            self.kinds,
        )


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
    found = Diversity()
    for metric, each in zip(metrics, described, strict=True):
        means = [_mean_over_pairs(metric, group) for group in _in_groups(each, size)]
        labels = [metric.label(one) for one in each]
        found.groups |= {v: [mean[n] for mean in means] for n, v in enumerate(metric.values)}
        found.kinds |= metric.labels
        found.labels |= {
            name: Counter(one[n] for one in labels if one[n])
            for n, name in enumerate(metric.labels)
        }
    return found


def entropy(counts: Mapping[str, int], kinds: int) -> float:
    """Normalised entropy of the shares of labels, from 0 to 1."""
    total = sum(counts.values())
    shares = [count / total for count in sorted(counts.values()) if count]
    return max(0.0, -math.fsum(share * math.log(share) for share in shares) / math.log(kinds))


def _in_groups(described: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [described[n : n + size] for n in range(0, len(described), size)]


def _mean_over_pairs(metric: DiversityMetric, group: Sequence[Any]) -> list[float]:
    """The mean of each value over the pairs of which it is known, NaN without any."""
    pairs, means = [metric.compare(*pair) for pair in combinations(group, 2)], []
    for n in range(len(metric.values)):
        known = [pair[n] for pair in pairs if not math.isnan(pair[n])]
        means.append(fmean(known) if known else math.nan)
    return means
