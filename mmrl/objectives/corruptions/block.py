"""Block diffusion: every block at once, each behind clean earlier blocks.

    row: prompt | y | copy of y        copies of block k hidden with probability p_k, weight 1/p_k

    p_k ~ U[eps, 1),   E = sum_k E_p sum_H P(H | p) / p sum_{j in H} CE_j(H; nothing later)

A copy sees the prompt, the clean blocks before its own and the copies of its own block; a clean
token sees the prompt and the clean blocks up to its own. A copy stands at the position of its
original. Source: BD3-LM (arXiv 2503.09573) and SDAR (2510.06303), whose public scripts draw a rate
per token or one for all blocks; here each block has its own. Deviations: the prompt attends to all
of itself, and blocks count from the first token of the completion. A network trained so writes
block by block with no masks behind the block; the samplers here put masks there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mmrl.objectives.corruptions.corruption import Chance, View
from mmrl.objectives.corruptions.semi_ar import SemiAR

if TYPE_CHECKING:
    from torch import Tensor


class BlockMasking:
    """Puts a corrupted copy of the completion behind the clean one."""

    recorded: ClassVar[bool] = False
    continued: ClassVar[bool] = False
    Config = SemiAR.Config

    def __init__(self, config: SemiAR.Config) -> None:
        self.config = config

    def __call__(self, order: Tensor, chance: Chance) -> View:
        """See `Corruption`."""
        import torch

        index = torch.arange(len(order))
        block = index // self.config.block_size
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
