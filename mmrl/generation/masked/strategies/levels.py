"""Estimates of the evidence bound at drawn levels of masking.

The bound of masked diffusion is the mean log-likelihood over all orders of writing (LLaDA, arXiv
2502.09992, eq. 6). Over levels from `min_mask_rate` to `max_mask_rate` it is estimated by

    uniform        of a row's n positions l are hidden, l uniform over its range, each set of l
                   equally likely, and scored with weight n / l. Hiding each position with a
                   probability t ~ U(0, 1) and weight 1 / t has the same mean and an infinite
                   variance
    stratified     the range is cut into num_draws x num_iterations strata; draw k of iteration i
                   takes a level at random from stratum k mu + i. UniGRPO (arXiv 2505.15809) spreads
                   one level per iteration
    quadrature     fixed levels t_n at the nodes of Gauss-Legendre quadrature, with weights omega_n;
                   only the masks are drawn (GDPO, arXiv 2510.08554). Exact in t up to n = 2 K
                   positions, where the mean score at a level is a polynomial of degree n - 1
    complementary  l positions as in `uniform`, then the other n - l, so that each token is scored
                   once per pair, with weights n / l and n / (n - l): coupled-GRPO (arXiv
                   2506.20639; with `include_full` also a pass that hides everything), ESPO (arXiv
                   2512.03759). Both numbers run over 1 .. n - 1, and l = n, which leaves nothing
                   for the second pass, counts double, so that the mean over the pair is the bound
                   over the full range. The full pass has weight 0 and the pair makes up for it
    blockwise      masks as a sampler that writes block by block sees them (SPG, arXiv 2510.09541):
                   a block is drawn, those before it stay visible, those after it are hidden, and of
                   its own n positions l are hidden as in `uniform`, with weight (blocks) n / l. The
                   expectation of the weighted sum is the sum over blocks of their bounds given the
                   blocks before. A row's draws take different blocks until all had their turn
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmrl.generation.masked.strategies.strategy import (
    RateRangeConfig,
    at_least_one,
    hide_at,
    hiding,
    passes_of,
)
from mmrl.generation.strategy import Draw
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class ComplementaryConfig(RateRangeConfig):
    """Options of complementary masks."""

    include_full: bool = False
    """Whether a complementary pair comes with a pass that hides everything."""


def plan_uniform(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, each with its own level per row."""
    where = rollout.canvas.counted
    return _plan_levels(
        rollout, config, draw, [draw.levels(where) for _ in range(config.num_draws)]
    )


def plan_stratified(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, one per stratum of this iteration."""
    where, strata = rollout.canvas.counted, config.num_draws * config.num_iterations
    numbers = [k * config.num_iterations + draw.iteration for k in range(config.num_draws)]
    levels = [(draw.levels(where) + number) / strata for number in numbers]
    return _plan_levels(rollout, config, draw, levels)


def _plan_levels(
    rollout: Rollout, config: RateRangeConfig, draw: Draw, levels: list[Tensor]
) -> Passes:
    """One pass per entry of `levels`, [B] in [0, 1): the place in the range of l."""
    where = rollout.canvas.counted
    hidden, weight = [], []
    for level in levels:
        chosen, counts = hide_at(level, where, config, draw)
        hidden.append(chosen)
        weight.append(chosen * (where.sum(-1) / counts)[:, None])
    return passes_of(rollout.canvas, hidden, weight)


def nodes(config: RateRangeConfig) -> list[tuple[float, float]]:
    """`num_draws` pairs (t_n, omega_n), the omegas adding up to 1."""
    from numpy.polynomial.legendre import leggauss

    points, weights = leggauss(config.num_draws)
    low, width = config.min_mask_rate, config.max_mask_rate - config.min_mask_rate
    return [(low + width * (x + 1) / 2, w / 2) for x, w in zip(points, weights, strict=True)]


def plan_quadrature(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """One pass per node; the score of pass n counts K omega_n / t_n in the mean over passes.

    A row that hides nothing hides one position, so that it is scored, with weight 0.
    """
    where = rollout.canvas.counted
    hidden, weight = [], []
    for rate, share in nodes(config):
        uniforms = draw.uniforms(where)
        chosen = (uniforms < rate) & where
        hidden.append(at_least_one(chosen, uniforms, where))
        weight.append(chosen * (config.num_draws * share / rate))
    return passes_of(rollout.canvas, hidden, weight)


def plan_complementary(rollout: Rollout, config: ComplementaryConfig, draw: Draw) -> Passes:
    """`num_draws` pairs, each followed by its full pass where that is included."""
    where = rollout.canvas.counted
    total = where.sum(-1)
    scale = 1.5 if config.include_full else 1.0
    hidden, weight = [], []
    for _ in range(config.num_draws):
        chosen, counts = hide_at(draw.levels(where), where, config, draw)
        first = (1.0 + (counts >= total)) * total / counts
        second = total / (total - counts).clamp(min=1)
        hidden += [chosen, where & ~chosen]
        weight += [chosen * first[:, None] * scale, (where & ~chosen) * second[:, None] * scale]
        if config.include_full:
            hidden.append(where)
            weight.append(weight[0] * 0)
    return passes_of(rollout.canvas, hidden, weight)


def plan_blockwise(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, each scoring some of the positions of one block."""
    canvas = rollout.canvas
    blocks = canvas.split(config.block_size)
    assert blocks is not None, "block_size is checked with the configuration"
    number = blocks.masked_fill(~canvas.counted, -1).amax(-1) + 1
    hidden, weight = [], []
    for active in _draw_blocks(number, config.num_draws, draw):
        inside = (blocks == active[:, None]) & canvas.counted
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


UNIFORM = hiding(plan_uniform, RateRangeConfig)
STRATIFIED = hiding(plan_stratified, RateRangeConfig)
QUADRATURE = hiding(plan_quadrature, RateRangeConfig)
COMPLEMENTARY = hiding(
    plan_complementary,
    ComplementaryConfig,
    number=lambda config, steps, length: config.num_draws * (2 + config.include_full),
)
BLOCKWISE = hiding(plan_blockwise, RateRangeConfig, needs_blocks=True)
