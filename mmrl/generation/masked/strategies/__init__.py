"""Mask strategies: which positions of a finished canvas are hidden again to score them.

A strategy turns finished rollouts into `Passes`: K draws of hidden positions, the positions scored
in each, and the weight of each score. Passes are drawn once per inner iteration and used for the
new, the old and the reference policy alike. Draws come from one generator per row, so they do not
depend on batch composition, process count or micro-batches.

A new strategy is one file that makes a `Strategy` of its `plan` and of a dataclass with its own
options, and one line in `STRATEGIES`. Its options are keys of the `algorithm` section. Settings are
read without torch, so such a file imports torch inside its functions.
"""

from mmrl.generation.masked.strategies.levels import (
    BLOCKWISE,
    COMPLEMENTARY,
    QUADRATURE,
    STRATIFIED,
    UNIFORM,
)
from mmrl.generation.masked.strategies.rates import AR_LIKE, FULL, RANDOM
from mmrl.generation.masked.strategies.trace import FORKS, LEFT_TO_RIGHT, TRACE
from mmrl.generation.strategy import Strategy

STRATEGIES: dict[str, Strategy] = {
    "full": FULL,
    "random": RANDOM,
    "uniform": UNIFORM,
    "stratified": STRATIFIED,
    "quadrature": QUADRATURE,
    "complementary": COMPLEMENTARY,
    "blockwise": BLOCKWISE,
    "ar_like": AR_LIKE,
    "trace": TRACE,
    "forks": FORKS,
    "left_to_right": LEFT_TO_RIGHT,
}
"""Mask strategies by the name used in configurations."""
