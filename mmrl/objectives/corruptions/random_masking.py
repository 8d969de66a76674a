"""Random masking with inverse-rate weights: LLaDA's objective (arXiv 2502.09992, equation 5).

    p ~ U[eps, 1),  each token hidden with probability p,  weight 1/p

    E = E_p sum_H P(H | p) / p sum_{j in H} CE_j(H)

For eps -> 0 this is the bound of any-order models, the mean negative log-likelihood over all n!
orders in which the completion could be written (arXiv 2110.02037).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.objectives.corruptions.corruption import Chance, Corruption, View, build_view

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class RandomConfig:
    """Hide each token at a rate drawn per completion."""


def corrupt(order: Tensor, chance: Chance, config: RandomConfig) -> View:
    """See `Corruption`."""
    rate = chance.rate()
    hidden = chance.tokens < rate
    return build_view(hidden, hidden / rate)


RANDOM = Corruption(corrupt, RandomConfig)
