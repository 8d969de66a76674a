"""blockwise: masks as a sampler that writes block by block sees them (SPG, arXiv 2510.09541).

A block is drawn, the blocks before it stay visible, those after it are hidden, and of the block's
own n positions l are hidden as in `uniform` and scored with weight (blocks) n / l. Over the full
range of levels the expectation of the weighted sum is the sum over blocks of their evidence bounds
given the blocks before. A row's draws take different blocks until all had their turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.estimators.masks.strategy import Draw, RateRangeConfig, Strategy, hide_at, passes_of
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


def plan(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, each scoring some of the positions of one block."""
    canvas = rollout.canvas
    blocks = canvas.split(config.block_size)
    assert blocks is not None, "block_size is checked with the configuration"
    number = blocks.masked_fill(~canvas.scorable, -1).amax(-1) + 1
    hidden, weight = [], []
    for active in _draw_blocks(number, config.num_draws, draw):
        inside = (blocks == active[:, None]) & canvas.scorable
        chosen, counts = hide_at(draw.levels(inside), inside, config, draw)
        hidden.append(chosen | (blocks > active[:, None]))
        weight.append(chosen * (number * inside.sum(-1) / counts)[:, None])
    passes = passes_of(canvas, hidden, weight)
    passes.scored = passes.weight > 0
    return passes


def _draw_blocks(number: Tensor, draws: int, draw: Draw) -> Tensor:
    """[K, B] int64: the block of each draw, a random order of each row's blocks repeated."""
    import torch

    orders = [
        torch.randperm(max(n, 1), generator=g)
        for n, g in zip(number.tolist(), draw.generators, strict=True)
    ]
    turns = [[int(order[k % len(order)]) for order in orders] for k in range(draws)]
    return torch.tensor(turns, device=number.device)


BLOCKWISE = Strategy(plan, RateRangeConfig, needs_blocks=True)
