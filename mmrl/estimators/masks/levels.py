"""Unbiased estimates of the evidence bound: uniform, stratified and quadrature.

The bound of masked diffusion is the mean log-likelihood over all orders of writing (LLaDA, arXiv
2502.09992, eq. 6). All three estimate it, over levels from `min_mask_rate` to `max_mask_rate`:

    uniform     of a row's n positions l are hidden, l uniform over its range, each set of l equally
                likely, and scored with weight n / l. Hiding each position with a probability
                t ~ U(0, 1) and weight 1 / t has the same mean and an infinite variance
    stratified  the range is cut into num_draws x num_iterations strata; draw k of iteration i takes
                a level at random from stratum k mu + i. UniGRPO (arXiv 2505.15809) spreads one
                level per iteration
    quadrature  fixed levels t_n at the nodes of Gauss-Legendre quadrature, with weights omega_n;
                only the masks are drawn (GDPO, arXiv 2510.08554). Exact in t up to n = 2 K
                positions, where the mean score at a level is a polynomial of degree n - 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.estimators.masks.strategy import (
    Draw,
    RateRangeConfig,
    Strategy,
    at_least_one,
    hide_at,
    passes_of,
)
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Tensor


def plan_uniform(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, each with its own level per row."""
    where = rollout.canvas.scorable
    levels = [draw.levels(where) for _ in range(config.num_draws)]
    return _plan_levels(rollout, config, draw, levels)


def plan_stratified(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, one per stratum of this iteration."""
    where, strata = rollout.canvas.scorable, config.num_draws * config.num_iterations
    numbers = [k * config.num_iterations + draw.iteration for k in range(config.num_draws)]
    levels = [(draw.levels(where) + number) / strata for number in numbers]
    return _plan_levels(rollout, config, draw, levels)


def _plan_levels(
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
    where = rollout.canvas.scorable
    hidden, weight = [], []
    for rate, share in nodes(config):
        uniforms = draw.uniforms(where)
        chosen = (uniforms < rate) & where
        hidden.append(at_least_one(chosen, uniforms, where))
        weight.append(chosen * (config.num_draws * share / rate))
    return passes_of(rollout.canvas, hidden, weight)


UNIFORM = Strategy(plan_uniform, RateRangeConfig)
STRATIFIED = Strategy(plan_stratified, RateRangeConfig)
QUADRATURE = Strategy(plan_quadrature, RateRangeConfig)
