"""Mask strategies: which positions of a finished canvas are hidden again to score them.

A strategy turns finished rollouts into `Passes`: K draws of hidden positions, the positions scored
in each, and the weight of each score. Passes are drawn once per inner iteration and used for the
new, the old and the reference policy alike. Draws come from one generator per row, so they do not
depend on batch composition, process count or micro-batches.

A new strategy is one file here with a `plan`, and with the `number` of its passes where they are
not one per draw, and one line in `MASKS`.
"""

from typing import TYPE_CHECKING

from mmrl.config.lazy_names import lazy_names
from mmrl.estimators.masks.strategy import Draw, Strategy

if TYPE_CHECKING:
    from mmrl.estimators.masks.draws import row_uniforms

__all__ = ["MASKS", "Draw", "Strategy", "row_uniforms"]

__getattr__ = lazy_names(__name__, {"draws": ("row_uniforms",)})

_RISING = ("min_mask_rate",)
_DRAWN = ("min_mask_rate", "max_mask_rate")
_CUT = ("slice_size", "num_slices", "sampled_slices")

MASKS: dict[str, Strategy] = {
    "full": Strategy("mmrl.estimators.masks.full"),
    "random": Strategy("mmrl.estimators.masks.random", reads=_RISING),
    "uniform": Strategy("mmrl.estimators.masks.uniform", reads=_DRAWN),
    "stratified": Strategy("mmrl.estimators.masks.stratified", reads=_DRAWN),
    "quadrature": Strategy("mmrl.estimators.masks.quadrature", reads=_DRAWN),
    "complementary": Strategy(
        "mmrl.estimators.masks.complementary", reads=(*_DRAWN, "include_full")
    ),
    "blockwise": Strategy("mmrl.estimators.masks.blockwise", needs_blocks=True, reads=_DRAWN),
    "ar_like": Strategy("mmrl.estimators.masks.ar_like", reads=_RISING),
    "trace": Strategy("mmrl.estimators.masks.trace", ordered=True, reads_trace=True, reads=_CUT),
    "left_to_right": Strategy("mmrl.estimators.masks.left_to_right", ordered=True, reads=_CUT),
}
"""Mask strategies by the name used in configurations."""
