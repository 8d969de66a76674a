"""Semi-autoregressive masking: the states a block sampler passes through.

    block k of K uniformly,  p ~ U[eps, 1)
    hidden: all later blocks, and each token of block k with probability p;  weight K/p in block k

    E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H and later blocks)

with H within block k: the sum over blocks of LLaDA's bound given the blocks before. Blocks count
from the first token of the completion, as in the samplers. Source: `semi-ar` of dLLM-RL (arXiv
2509.06949). Deviations: one rate per view instead of one per token, which amounts to half of the
block being hidden every time; weights 1/p; one block at a time instead of all as rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.config import check
from mmrl.objectives.corruptions.corruption import (
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
class BlocksConfig:
    """Blocks of a completion."""

    block_size: int = 32
    """Tokens of a block, that of the sampler the model is meant for."""

    def __post_init__(self) -> None:
        key = "objective.corruption.block_size"
        check(self.block_size >= 1, key, self.block_size, "at least 1")


@dataclass(kw_only=True)
class SemiARConfig(BlocksConfig):
    """Hide tokens of one block, and all later blocks."""

    weights: Weights = "inverse_rate"
    """`inverse_rate`, or `mean`: the mean cross-entropy over the hidden tokens of the block."""


def corrupt(order: Tensor, chance: Chance, config: SemiARConfig) -> View:
    """See `Corruption`."""
    import torch

    block = torch.arange(len(order)) // config.block_size
    count = int(block[-1]) + 1
    rate, chosen = chance.rate(), chance.pick(count)
    scored = (block == chosen) & (chance.tokens < rate)
    weight = take_mean(scored) if config.weights == "mean" else scored * count / rate
    return build_view(scored | (block > chosen), weight)


SEMI_AR = Corruption(corrupt, SemiARConfig)
