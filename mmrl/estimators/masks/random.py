"""random: each position hidden with a rate that rises over the inner iterations.

rate_i = min(r0 + (1 - r0) (i + 1) / mu, 0.999) with r0 = `min_mask_rate`, iteration i of mu:
MaskGRPO for images (arXiv 2510.02880) with a high r0, which leaves out the easy levels. A row whose
draw hides nothing hides its first drawn position, so that every rollout is scored.
"""

from mmrl.estimators.masks.strategy import Draw, RisingRateConfig, Strategy, at_least_one, passes_of
from mmrl.types import Passes, Rollout


def rising_rate(config: RisingRateConfig, iteration: int) -> float:
    """The rate of an inner iteration."""
    r0 = config.min_mask_rate
    return min(r0 + (1 - r0) * (iteration + 1) / config.num_iterations, 0.999)


def plan(rollout: Rollout, config: RisingRateConfig, draw: Draw) -> Passes:
    """`num_draws` passes at the rate of this iteration, weight 1."""
    where, hidden = rollout.canvas.scorable, []
    for _ in range(config.num_draws):
        uniforms = draw.uniforms(where)
        chosen = (uniforms < rising_rate(config, draw.iteration)) & where
        hidden.append(at_least_one(chosen, uniforms, where))
    return passes_of(rollout.canvas, hidden)


RANDOM = Strategy(plan, RisingRateConfig)
