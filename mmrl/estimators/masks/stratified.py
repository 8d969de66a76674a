"""stratified: as `uniform`, with levels spread evenly over draws and inner iterations.

The range of levels is cut into num_draws x num_iterations strata; draw k of iteration i takes a
level at random from stratum k mu + i. UniGRPO (arXiv 2505.15809) spreads one level per iteration;
all iterations together, or all draws of a single one, estimate the evidence bound without bias.
"""

from mmrl.estimators.masks.draws import row_levels
from mmrl.estimators.masks.strategy import Draw
from mmrl.estimators.masks.uniform import at_levels
from mmrl.types import Passes, Rollout


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """`num_draws` passes, one per stratum of this iteration."""
    device, strata = rollout.canvas.tokens.device, draw.num_draws * draw.num_iterations
    places = [k * draw.num_iterations + draw.iteration for k in range(draw.num_draws)]
    return at_levels(
        rollout, draw, [(row_levels(draw.generators, device) + p) / strata for p in places]
    )
