"""Positions hidden independently at a given rate: full, random and ar_like.

    full     every response position, all tokens scored given the prompt (d1, arXiv 2504.12216)
    random   rate_i = min(r0 + (1 - r0) (i + 1) / mu, 0.999) with r0 = `min_mask_rate`, iteration i
             of mu: MaskGRPO for images (arXiv 2510.02880) with a high r0, which leaves out the easy
             levels
    ar_like  MaskGRPO for text: later positions more often. The probability to keep position j of n
             falls linearly, keep_j = min(1, (1 - rate) n b_j / sum_j b_j) with b from 1 down to 0,
             at the rate of `random`; a score counts 1 / (1 - keep_j), the inverse of the
             probability to be hidden

With `prompt_mask_rate` prompt tokens are hidden as well; draws of `full` differ in nothing else. A
row whose draw hides nothing hides one position, so that every rollout is scored: of `random` its
first drawn one, of `ar_like` its lowest-kept one, with weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.generation.masked.strategies.strategy import (
    MaskConfig,
    RisingRateConfig,
    at_least_one,
    hiding,
    passes_of,
)
from mmrl.generation.strategy import Draw
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


def plan_full(rollout: Rollout, config: MaskConfig, draw: Draw) -> Passes:
    """`num_draws` passes over the whole response, weight 1."""
    return passes_of(rollout.canvas, [rollout.canvas.response] * config.num_draws)


def rising_rate(config: RisingRateConfig, iteration: int) -> float:
    """The rate of an inner iteration."""
    r0 = config.min_mask_rate
    return min(r0 + (1 - r0) * (iteration + 1) / config.num_iterations, 0.999)


def plan_random(rollout: Rollout, config: RisingRateConfig, draw: Draw) -> Passes:
    """`num_draws` passes at the rate of this iteration, weight 1."""
    where, hidden = rollout.canvas.counted, []
    for _ in range(config.num_draws):
        uniforms = draw.uniforms(where)
        chosen = (uniforms < rising_rate(config, draw.iteration)) & where
        hidden.append(at_least_one(chosen, uniforms, where))
    return passes_of(rollout.canvas, hidden)


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


def plan_ar_like(rollout: Rollout, config: RisingRateConfig, draw: Draw) -> Passes:
    """`num_draws` passes at the rate of this iteration."""
    where = rollout.canvas.counted
    keep = keep_probability(where, rising_rate(config, draw.iteration))
    hidden, weight = [], []
    for _ in range(config.num_draws):
        chosen = (draw.uniforms(where) > keep) & where
        hidden.append(at_least_one(chosen, keep, where))
        weight.append(chosen / (1 - keep).clamp(min=1e-12))
    return passes_of(rollout.canvas, hidden, weight)


FULL = hiding(plan_full)
RANDOM = hiding(plan_random, RisingRateConfig)
AR_LIKE = hiding(plan_ar_like, RisingRateConfig)
