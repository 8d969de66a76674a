"""Rewards of completions that differ from the others of their group.

    r' = r (1 + Σ_v w_v d_v)

d_v is the mean difference of a completion to the others of its group by the value v of a diversity
metric, w_v its weight. A factor favours a rare completion only as far as it is good (DARLING,
arXiv 2509.02534, which normalises a learned diversity within the group; here it is the metric's).
Rewards of 0 or less stay as they are: a factor would punish what differs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.rollouts.diversity.measured import differences
from mmrl.rollouts.diversity.metrics import DiversityMetric


def add_bonus(
    rewards: Sequence[float | None],
    metrics: Sequence[DiversityMetric],
    described: Sequence[Sequence[Any]],
    size: int,
    weights: Mapping[str, float],
) -> list[float | None]:
    """Rewards with the bonus of what differs.

    Args:
        rewards: of the completions, group by group; None where no reward applies.
        metrics: what is compared.
        described: of each metric, the descriptions of the completions.
        size: of a group.
        weights: by name of a value; one that is not known of a completion gives it nothing.

    Returns:
        As many rewards.
    """
    factors = [1.0] * len(rewards)
    if weights:
        found = differences(metrics, described, size)
        for name, weight in weights.items():
            known = [0.0 if math.isnan(value) else value for value in found[name]]
            factors = [old + weight * new for old, new in zip(factors, known, strict=True)]
    return [
        reward * factor if reward is not None and reward > 0 else reward
        for reward, factor in zip(rewards, factors, strict=True)
    ]
