"""Maskings with a random rate: of the whole completion, of one block, or of all blocks at once.

Random masking, LLaDA's objective (arXiv 2502.09992, equation 5):

    p ~ U[eps, 1),  each token hidden with probability p,  weight 1/p

    E = E_p sum_H P(H | p) / p sum_{j in H} CE_j(H)

For eps -> 0 this is the bound of any-order models, the mean negative log-likelihood over all n!
orders in which the completion could be written (arXiv 2110.02037).

Semi-autoregressive masking, the states that a block sampler passes through:

    block k of K uniformly,  p ~ U[eps, 1)
    hidden: all later blocks, and each token of block k with probability p;  weight K/p in block k

    E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H and later blocks)

with H within block k: the sum over blocks of the bound above given the blocks before. Blocks count
from the first token of the completion, as in the samplers. Source: `semi-ar` of dLLM-RL (arXiv
2509.06949). Deviations: one rate per view instead of one per token, which amounts to half of the
block being hidden every time; weights 1/p; one block at a time instead of all as rows of a batch.

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
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from mmrl.config import Settings, above, at_least, check
from mmrl.objectives.corruptions.corruption import EPS, Chance, Corruption, View, build_view

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class RandomConfig(Settings):
    """Hide each token at a rate drawn per completion."""

    where: ClassVar[str] = "objective.corruption"

    min_mask_rate: Annotated[float, above(0, up_to=1)] = EPS
    """Lowest rate."""
    max_mask_rate: Annotated[float, above(0, up_to=1)] = 1.0
    """Highest rate."""
    weights: Literal["inverse_rate", "mean"] = "inverse_rate"
    """Of hidden tokens: `inverse_rate` makes the loss a bound of the likelihood; `mean` is the mean
    cross-entropy over those hidden in the view, as in dLLM-RL (arXiv 2509.06949)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.min_mask_rate, self.max_mask_rate
        check(low <= high, f"{self.where}.min_mask_rate", low, f"at most max_mask_rate, {high:g}")


@dataclass(kw_only=True)
class BlockConfig(Settings):
    """Append a corrupted copy of the completion to the clean one."""

    where: ClassVar[str] = "objective.corruption"

    block_size: Annotated[int, at_least(1)] = 32
    """Tokens of a block, that of the sampler the model is meant for."""


@dataclass(kw_only=True)
class SemiARConfig(BlockConfig, RandomConfig):
    """Hide tokens of one block, and all later blocks."""


def corrupt_random(order: Tensor, chance: Chance, config: RandomConfig) -> View:
    """See `Corruption`."""
    size = config.block_size if isinstance(config, SemiARConfig) else len(order)
    block = _number_blocks(order, size)
    count = int(block[-1]) + 1
    rate = chance.rate(low=config.min_mask_rate, high=config.max_mask_rate)
    chosen = chance.pick(count)
    scored = (block == chosen) & (chance.tokens < rate)
    weight = scored * count / rate
    if config.weights == "mean":
        weight = scored * (len(order) / scored.sum().clamp(min=1))
    return build_view(scored | (block > chosen), weight)


def corrupt_block(order: Tensor, chance: Chance, config: BlockConfig) -> View:
    """See `Corruption`."""
    import torch

    block = _number_blocks(order, config.block_size)
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


def _number_blocks(order: Tensor, size: int) -> Tensor:
    import torch

    return torch.arange(len(order)) // size


RANDOM = Corruption(corrupt_random, RandomConfig)
SEMI_AR = Corruption(corrupt_random, SemiARConfig)
BLOCK = Corruption(corrupt_block, BlockConfig, continued=False)
