"""left_to_right: position i scored with all before it visible and all from it on hidden.

JustGRPO (arXiv 2601.15165): log pi(y) = sum_i log p(y_i | x, y_<i), exact for a sampler that writes
one token after the other. `slice_size` positions share a pass.
"""

from mmrl.estimators.masks.strategy import Draw, Strategy
from mmrl.estimators.masks.trace import SliceConfig, number_of_slices, plan_slices
from mmrl.types import Passes, Rollout


def number(config: SliceConfig, steps: int, length: int) -> int:
    """Slices of the response positions."""
    return number_of_slices(config, length)


def plan(rollout: Rollout, config: SliceConfig, draw: Draw) -> Passes:
    """One pass per slice of positions."""
    response = rollout.canvas.response
    order = (response.cumsum(-1) - 1).where(response, -1)
    return plan_slices(rollout, order, config)


LEFT_TO_RIGHT = Strategy(plan, SliceConfig, number, ordered=True)
