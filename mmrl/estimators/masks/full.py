"""full: every response position hidden, all tokens scored given the prompt (d1, arXiv 2504.12216).

With `prompt_mask_rate` prompt tokens are hidden as well; with several draws only these differ.
"""

from mmrl.estimators.masks.strategy import Draw, MaskConfig, Strategy, passes_of
from mmrl.types import Passes, Rollout


def plan(rollout: Rollout, config: MaskConfig, draw: Draw) -> Passes:
    """`num_draws` passes over the whole response, weight 1."""
    canvas = rollout.canvas
    return passes_of(canvas, [canvas.response] * config.num_draws)


FULL = Strategy(plan)
