"""Blocks of a completion, counted from its first token as in the samplers.

Semi-autoregressive masking, the states that a block sampler passes through:

    block k of K uniformly,  p ~ U[eps, 1)
    hidden: all later blocks, and each token of block k with probability p;  weight K/p in block k

    E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H and later blocks)

with H within block k: the sum over blocks of LLaDA's bound given the blocks before. Source:
`semi-ar` of dLLM-RL (arXiv 2509.06949). Deviations: one rate per view instead of one per token,
which amounts to half of the block being hidden every time; weights 1/p; one block at a time instead
of all as rows of a batch.

Block diffusion, every block at once, each after the clean blocks before it:

    row: prompt | y | copy of y        copies of block k hidden with probability p_k, weight 1/p_k

    p_k ~ U[eps, 1),   E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H; nothing later)

A copy sees the prompt, the clean blocks before its block and the copies of that block; a clean
token sees the prompt and the clean blocks up to its own. A copy has the position of its original.
Source: BD3-LM (arXiv 2503.09573) and SDAR (2510.06303), whose public scripts draw a rate
per token or one for all blocks; here each block has its own. Blocks count in both directions where
the network's attention is causal between blocks (SDAR); in any other network the prompt attends to
all of itself, and its samplers put masks after a block that this training has not seen.
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
class BlockConfig:
    """Append a corrupted copy of the completion to the clean one."""

    block_size: int = 32
    """Tokens of a block, that of the sampler the model is meant for."""

    def __post_init__(self) -> None:
        key = "objective.corruption.block_size"
        check(self.block_size >= 1, key, self.block_size, "at least 1")


@dataclass(kw_only=True)
class SemiARConfig(BlockConfig):
    """Hide tokens of one block, and all later blocks."""

    weights: Weights = "inverse_rate"
    """`inverse_rate`, or `mean`: the mean cross-entropy over the hidden tokens of the block."""


def corrupt_semi_ar(order: Tensor, chance: Chance, config: SemiARConfig) -> View:
    """See `Corruption`."""
    block = _number_blocks(order, config)
    count = int(block[-1]) + 1
    rate, chosen = chance.rate(), chance.pick(count)
    scored = (block == chosen) & (chance.tokens < rate)
    weight = take_mean(scored) if config.weights == "mean" else scored * count / rate
    return build_view(scored | (block > chosen), weight)


def corrupt_block(order: Tensor, chance: Chance, config: BlockConfig) -> View:
    """See `Corruption`."""
    import torch

    block = _number_blocks(order, config)
    rate = chance.rate(int(block[-1]) + 1)[block]
    hidden = chance.tokens < rate
    clean = torch.zeros_like(hidden)
    return View(
        index=torch.arange(len(order)).repeat(2),
        hidden=torch.cat((clean, hidden)),
        weight=torch.cat((clean, hidden / rate)),
        block=block.repeat(2),
        copy=torch.cat((clean, ~clean)),
    )


def _number_blocks(order: Tensor, config: BlockConfig) -> Tensor:
    import torch

    return torch.arange(len(order)) // config.block_size


SEMI_AR = Corruption(corrupt_semi_ar, SemiARConfig)
BLOCK = Corruption(corrupt_block, BlockConfig, continued=False)
