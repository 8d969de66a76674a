"""Mask strategies: which positions of a finished canvas are hidden again to score them.

A strategy turns finished rollouts into `Passes`: K draws of hidden positions, the positions scored
in each, and the weight of each score. Passes are drawn once per inner iteration and used for the
new, the old and the reference policy alike. Draws come from one generator per row, so they do not
depend on batch composition, process count or micro-batches.

A new strategy is one file that makes a `Strategy` of its `plan` and of a dataclass with its own
options, and one line in `MASKS`. Its options are keys of the `algorithm` section. Settings are read
without torch, so such a file imports torch inside its functions.
"""

from mmrl.estimators.masks.levels import BLOCKWISE, COMPLEMENTARY, QUADRATURE, STRATIFIED, UNIFORM
from mmrl.estimators.masks.rates import AR_LIKE, FULL, RANDOM
from mmrl.estimators.masks.strategy import MaskConfig, Strategy
from mmrl.estimators.masks.trace import LEFT_TO_RIGHT, TRACE

MASKS: dict[str, Strategy] = {
    "full": FULL,
    "random": RANDOM,
    "uniform": UNIFORM,
    "stratified": STRATIFIED,
    "quadrature": QUADRATURE,
    "complementary": COMPLEMENTARY,
    "blockwise": BLOCKWISE,
    "ar_like": AR_LIKE,
    "trace": TRACE,
    "left_to_right": LEFT_TO_RIGHT,
}
"""Mask strategies by the name used in configurations."""
