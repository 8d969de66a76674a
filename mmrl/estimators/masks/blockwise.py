"""blockwise: masks as a sampler that writes block by block sees them (SPG, arXiv 2510.09541).

A block is drawn, the blocks before it stay visible, those after it are hidden, and of the block's
own n positions l are hidden as in `uniform` and scored with weight (blocks) n / l. Over the full
range of levels the expectation of the weighted sum is the sum over blocks of their evidence bounds
given the blocks before. A row's draws take different blocks until all had their turn.
"""

import torch
from torch import Tensor

from mmrl.estimators.masks.draws import counts_at, lowest_of, row_levels, row_uniforms
from mmrl.estimators.masks.strategy import Draw, blocks_of, passes_of
from mmrl.types import Passes, Rollout


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """`num_draws` passes, each scoring some of the positions of one block."""
    assert draw.block_size is not None, "checked with the configuration"
    canvas = rollout.canvas
    blocks = blocks_of(canvas, draw.block_size)
    number = blocks.masked_fill(~canvas.scorable, -1).amax(-1) + 1
    active = _turns(number, draw)
    hidden, weight = [], []
    for k in range(draw.num_draws):
        inside = (blocks == active[k][:, None]) & canvas.scorable
        level = row_levels(draw.generators, blocks.device)
        counts = counts_at(level, inside, draw.min_mask_rate, draw.max_mask_rate)
        chosen = lowest_of(row_uniforms(inside, draw.generators), inside, counts)
        hidden.append(chosen | (blocks > active[k][:, None]))
        weight.append(chosen * (number * inside.sum(-1) / counts)[:, None])
    scored = torch.stack(weight) > 0
    passes = passes_of(canvas, torch.stack(hidden))
    return Passes(passes.hidden, scored, torch.stack(weight).float())


def _turns(number: Tensor, draw: Draw) -> Tensor:
    """[K, B] int64: the block of each draw, a random order of each row's blocks repeated."""
    orders = [
        torch.randperm(max(n, 1), generator=g)
        for n, g in zip(number.tolist(), draw.generators, strict=True)
    ]
    turns = [[int(order[k % len(order)]) for order in orders] for k in range(draw.num_draws)]
    return torch.tensor(turns, device=number.device)
