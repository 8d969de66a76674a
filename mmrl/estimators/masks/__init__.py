"""Mask strategies: which positions of a finished canvas are hidden again to score them.

A strategy turns finished rollouts into `Passes`: K draws of hidden positions, the positions scored
in each, and the weight of each score. Passes are drawn once per inner iteration and used for the
new, the old and the reference policy alike. Draws come from one generator per row, so they do not
depend on batch composition, process count or micro-batches.

A new strategy is one file here with a `plan` and the number of its passes, and one line in `MASKS`.
"""

from mmrl.estimators.masks import (
    ar_like,
    blockwise,
    complementary,
    full,
    left_to_right,
    quadrature,
    random,
    stratified,
    trace,
    uniform,
)
from mmrl.estimators.masks.draws import row_uniforms
from mmrl.estimators.masks.strategy import Draw, Strategy

__all__ = ["MASKS", "Draw", "Strategy", "row_uniforms"]

_RISING = ("min_mask_rate",)
_DRAWN = ("min_mask_rate", "max_mask_rate")
_CUT = ("slice_size", "num_slices", "sampled_slices")

MASKS: dict[str, Strategy] = {
    "full": Strategy(full.plan),
    "random": Strategy(random.plan, reads=_RISING),
    "uniform": Strategy(uniform.plan, reads=_DRAWN),
    "stratified": Strategy(stratified.plan, reads=_DRAWN),
    "quadrature": Strategy(quadrature.plan, reads=_DRAWN),
    "complementary": Strategy(
        complementary.plan, complementary.number, reads=(*_DRAWN, "include_full")
    ),
    "blockwise": Strategy(blockwise.plan, needs_blocks=True, reads=_DRAWN),
    "ar_like": Strategy(ar_like.plan, reads=_RISING),
    "trace": Strategy(trace.plan, trace.number, ordered=True, reads_trace=True, reads=_CUT),
    "left_to_right": Strategy(left_to_right.plan, left_to_right.number, ordered=True, reads=_CUT),
}
"""Mask strategies by the name used in configurations."""
