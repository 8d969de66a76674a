"""random: each position hidden with a rate that rises over the inner iterations.

rate_i = min(r0 + (1 - r0) (i + 1) / mu, 0.999) with r0 = `min_mask_rate`, iteration i of mu:
MaskGRPO for images (arXiv 2510.02880) with a high r0, which leaves out the easy levels. A row whose
draw hides nothing hides its first drawn position, so that every rollout is scored.
"""

import torch

from mmrl.estimators.masks.draws import at_least_one, row_uniforms
from mmrl.estimators.masks.strategy import Draw, passes_of
from mmrl.types import Passes, Rollout


def rising_rate(draw: Draw) -> float:
    """The rate of this inner iteration."""
    r0 = draw.min_mask_rate
    return min(r0 + (1 - r0) * (draw.iteration + 1) / draw.num_iterations, 0.999)


def plan(rollout: Rollout, draw: Draw) -> Passes:
    """`num_draws` passes at the rate of this iteration, weight 1."""
    where = rollout.canvas.scorable
    uniforms = torch.stack(
        [row_uniforms(where, draw.generators) for _ in range(draw.num_draws)]
    ).masked_fill(~where, 2.0)
    # the lowest draw is below the rate wherever anything is
    hidden = at_least_one((uniforms < rising_rate(draw)) & where, uniforms, where)
    return passes_of(rollout.canvas, hidden)
