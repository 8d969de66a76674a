"""Random masking with inverse-rate weights: LLaDA's objective (arXiv 2502.09992, equation 5).

    p ~ U[eps, 1),  each token hidden with probability p,  weight 1/p

    E = E_p sum_H P(H | p) / p sum_{j in H} CE_j(H)

For eps -> 0 this is the bound of any-order models, the mean negative log-likelihood over all n!
orders in which the completion could be written (arXiv 2110.02037).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import (
    EPS,
    Chance,
    Corruption,
    View,
    Weights,
    build_view,
    take_mean,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class RandomConfig:
    """Hide each token at a rate drawn per completion."""

    min_mask_rate: float = EPS
    """Lowest rate."""
    max_mask_rate: float = 1.0
    """Highest rate."""
    weights: Weights = "inverse_rate"
    """`inverse_rate`, or `mean`: the mean cross-entropy over the hidden tokens of a completion."""

    def __post_init__(self) -> None:
        low, high = self.min_mask_rate, self.max_mask_rate
        allowed = "rates in ascending order, above 0 and up to 1"
        check(0 < low <= high <= 1, "objective.corruption.min_mask_rate", low, allowed)


def corrupt(order: Tensor, chance: Chance, config: RandomConfig) -> View:
    """See `Corruption`."""
    rate = chance.rate(low=config.min_mask_rate, high=config.max_mask_rate)
    hidden = chance.tokens < rate
    mean = config.weights == "mean"
    return build_view(hidden, take_mean(hidden) if mean else hidden / rate)


RANDOM = Corruption(corrupt, RandomConfig)
