"""Left to right: every step writes its even share of a block, the first open positions first.

With as many steps as positions it is autoregressive decoding by a bidirectional model. Which
positions a step writes is known before its forward, so logits are computed there only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.config.options import NoOptions
from mmrl.samplers.confidence import quota
from mmrl.samplers.rule import Rule, State, write_all

if TYPE_CHECKING:
    from torch import Tensor


def candidates(state: State, config: NoOptions) -> Tensor:
    """[B, L] bool: the first open positions of each row, as many as its share."""
    return state.masked & (state.masked.cumsum(1) <= quota(state)[:, None])


LEFT_TO_RIGHT = Rule(candidates, write_all, fixed=True)
