"""uniform: the number of hidden positions is itself drawn uniformly.

Of a row's n positions l are hidden, l uniform over `min_mask_rate` n .. `max_mask_rate` n, each set
of l equally likely, and scored with weight n / l. Over the full range the expectation of the
weighted sum is the evidence bound of masked diffusion, that is the mean log-likelihood over all
orders (LLaDA, arXiv 2502.09992, eq. 6). Hiding each position with a probability t ~ U(0, 1) and
weight 1 / t has the same mean and an infinite variance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.estimators.masks.strategy import Draw, RateRangeConfig, Strategy, hide_at, passes_of
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


def plan(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, each with its own level per row."""
    where = rollout.canvas.scorable
    levels = [draw.levels(where) for _ in range(config.num_draws)]
    return plan_levels(rollout, config, draw, levels)


def plan_levels(
    rollout: Rollout, config: RateRangeConfig, draw: Draw, levels: list[Tensor]
) -> Passes:
    """One pass per entry of `levels`, [B] in [0, 1): the place in the range of l."""
    where = rollout.canvas.scorable
    hidden, weight = [], []
    for level in levels:
        chosen, counts = hide_at(level, where, config, draw)
        hidden.append(chosen)
        weight.append(chosen * (where.sum(-1) / counts)[:, None])
    return passes_of(rollout.canvas, hidden, weight)


UNIFORM = Strategy(plan, RateRangeConfig)
