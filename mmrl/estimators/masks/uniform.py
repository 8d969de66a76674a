"""uniform: the number of hidden positions is itself drawn uniformly.

Of a row's n positions l are hidden, l uniform over `min_mask_rate` n .. `max_mask_rate` n, each set
of l equally likely, and scored with weight n / l. Over the full range the expectation of the
weighted sum is the evidence bound of masked diffusion, that is the mean log-likelihood over all
orders (LLaDA, arXiv 2502.09992, eq. 6). Hiding each position with a probability t ~ U(0, 1) and
weight 1 / t has the same mean and an infinite variance.
"""

import torch
from torch import Tensor

from mmrl.estimators.masks.draws import counts_at, lowest_of, row_levels, row_uniforms
from mmrl.estimators.masks.strategy import Draw, passes_of
from mmrl.types import Passes, Rollout


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """`num_draws` passes, each with a level of its own per row."""
    device = rollout.canvas.tokens.device
    return at_levels(
        rollout, draw, [row_levels(draw.generators, device) for _ in range(draw.num_draws)]
    )


def at_levels(rollout: Rollout, draw: Draw, levels: list[Tensor]) -> Passes:
    """One pass per entry of `levels`, [B] in [0, 1): the place in the range of l."""
    where = rollout.canvas.scorable
    hidden, weight = [], []
    for level in levels:
        counts = counts_at(level, where, draw.min_mask_rate, draw.max_mask_rate)
        chosen = lowest_of(row_uniforms(where, draw.generators), where, counts)
        hidden.append(chosen)
        weight.append(chosen * (where.sum(-1) / counts)[:, None])
    return passes_of(rollout.canvas, torch.stack(hidden), torch.stack(weight).float())
