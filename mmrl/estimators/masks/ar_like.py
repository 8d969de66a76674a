"""ar_like: later positions are hidden more often, as when text is written from left to right.

MaskGRPO for text (arXiv 2510.02880): the probability to keep position j of n falls linearly,
keep_j = min(1, (1 - rate) n b_j / sum_j b_j) with b from 1 down to 0, at the rate of `random`,
which rises over the inner iterations. A score counts 1 / (1 - keep_j), the inverse of the
probability to be hidden. A row that hides nothing hides its lowest-kept position, with weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.estimators.masks.random import rising_rate
from mmrl.estimators.masks.strategy import Draw, RisingRateConfig, Strategy, at_least_one, passes_of
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


def keep_probability(where: Tensor, rate: float) -> Tensor:
    """[B, L] float32: the probability that each True entry of `where` stays visible."""
    import torch

    keep = torch.ones(where.shape, device=where.device)
    for row, positions in enumerate(where):
        number = int(positions.sum())
        base = torch.linspace(1, 0, number, device=where.device)
        if number:
            keep[row, positions] = (base * (1 - rate) * number / base.sum()).clamp(max=1)
    return keep


def plan(rollout: Rollout, config: RisingRateConfig, draw: Draw) -> Passes:
    """`num_draws` passes at the rate of this iteration."""
    where = rollout.canvas.scorable
    keep = keep_probability(where, rising_rate(config, draw.iteration))
    hidden, weight = [], []
    for _ in range(config.num_draws):
        chosen = (draw.uniforms(where) > keep) & where
        hidden.append(at_least_one(chosen, keep, where))
        weight.append(chosen / (1 - keep).clamp(min=1e-12))
    return passes_of(rollout.canvas, hidden, weight)


AR_LIKE = Strategy(plan, RisingRateConfig)
