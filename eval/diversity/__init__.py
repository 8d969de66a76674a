"""Diversity: how different the completions of one prompt are.

    diversity: [{name: tokens}, {name: shapes}]

A metric describes every completion and compares two descriptions. Its values are means over the
pairs of a prompt's completions, so their expectation does not depend on the size of a group:

    D = 2 / (G (G - 1)) · Σ_{i<j} d(i, j)

To add one, write a file with a class that has what `DiversityMetric` asks for, and one line here.
"""

from mmrl.evaluation.diversity.metric import Completions, DiversityMetric
from mmrl.evaluation.diversity.registry import DIVERSITY, build_metrics, check_metrics

__all__ = [
    "DIVERSITY",
    "Completions",
    "DiversityMetric",
    "build_metrics",
    "check_metrics",
]
