"""stratified: as `uniform`, with levels spread evenly over draws and inner iterations.

The range of levels is cut into num_draws x num_iterations strata; draw k of iteration i takes a
level at random from stratum k mu + i. UniGRPO (arXiv 2505.15809) spreads one level per iteration;
all iterations together, or all draws of a single one, estimate the evidence bound without bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mmrl.estimators.masks.strategy import RateRangeConfig, Strategy, row_levels
from mmrl.estimators.masks.uniform import plan_levels
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Generator


def plan(
    rollout: Rollout, config: RateRangeConfig, generators: Sequence[Generator], iteration: int
) -> Passes:
    """`num_draws` passes, one per stratum of this iteration."""
    where, strata = rollout.canvas.scorable, config.num_draws * config.num_iterations
    places = [k * config.num_iterations + iteration for k in range(config.num_draws)]
    levels = [(row_levels(where, generators) + place) / strata for place in places]
    return plan_levels(rollout, config, generators, levels)


STRATIFIED = Strategy(plan, RateRangeConfig)
