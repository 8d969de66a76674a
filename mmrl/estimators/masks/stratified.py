"""stratified: as `uniform`, with levels spread evenly over draws and inner iterations.

The range of levels is cut into num_draws x num_iterations strata; draw k of iteration i takes a
level at random from stratum k mu + i. UniGRPO (arXiv 2505.15809) spreads one level per iteration;
all iterations together, or all draws of a single one, estimate the evidence bound without bias.
"""

from mmrl.estimators.masks.strategy import Draw, RateRangeConfig, Strategy
from mmrl.estimators.masks.uniform import plan_levels
from mmrl.types import Passes, Rollout


def plan(rollout: Rollout, config: RateRangeConfig, draw: Draw) -> Passes:
    """`num_draws` passes, one per stratum of this iteration."""
    where, strata = rollout.canvas.scorable, config.num_draws * config.num_iterations
    places = [k * config.num_iterations + draw.iteration for k in range(config.num_draws)]
    levels = [(draw.levels(where) + place) / strata for place in places]
    return plan_levels(rollout, config, draw, levels)


STRATIFIED = Strategy(plan, RateRangeConfig)
