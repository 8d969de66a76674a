"""Block diffusion: every block at once, each after the clean blocks before it.

    row: prompt | y | copy of y        copies of block k hidden with probability p_k, weight 1/p_k

    p_k ~ U[eps, 1),   E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H; nothing later)

A copy sees the prompt, the clean blocks before its block and the copies of that block; a clean
token sees the prompt and the clean blocks up to its own. A copy has the position of its original.
Source: BD3-LM (arXiv 2503.09573) and SDAR (2510.06303), whose public scripts draw a rate
per token or one for all blocks; here each block has its own. Blocks count from the first token of
the completion, in both directions where the network's attention is causal between blocks (SDAR);
in any other network the prompt attends to all of itself, and its samplers put masks after a block
that this training has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.objectives.corruptions.corruption import Chance, Corruption, View
from mmrl.objectives.corruptions.semi_ar import BlocksConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class BlockConfig(BlocksConfig):
    """Append a corrupted copy of the completion to the clean one."""


def corrupt(order: Tensor, chance: Chance, config: BlockConfig) -> View:
    """See `Corruption`."""
    import torch

    index = torch.arange(len(order))
    block = index // config.block_size
    rate = chance.rate(int(block[-1]) + 1)[block]
    hidden = chance.tokens < rate
    clean = torch.zeros_like(hidden)
    return View(
        index=index.repeat(2),
        hidden=torch.cat((clean, hidden)),
        weight=torch.cat((clean, hidden / rate)),
        block=block.repeat(2),
        copy=torch.cat((clean, ~clean)),
    )


BLOCK = Corruption(corrupt, BlockConfig, continued=False)
