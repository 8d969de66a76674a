"""Emerge: the ancestral step of masked diffusion, MaskGRPO's image sampler (arXiv 2510.02880).

At step s of S an unwritten position stays masked with probability alpha_{s+1} / alpha_s, otherwise
it takes a draw from the model's categorical distribution; the last step writes all that is open.
The joint draw of the public code, one categorical over C codes plus "stay", is the same
distribution as drawing "stay" first. Drawing it first determines which positions this step can
write before the forward, so logits are computed there only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.samplers.rule import Rule, State, write_all
from mmrl.samplers.schedule import ScheduleConfig, alpha

if TYPE_CHECKING:
    from torch import Tensor


def stay_probability(state: State, config: ScheduleConfig) -> Tensor | float:
    """Probability, float32, that an open position stays masked in this step."""
    if state.last:
        return 0.0
    now, then = (alpha(config.schedule, state.step + n, state.block.steps) for n in (0, 1))
    return then / now


def candidates(state: State, config: ScheduleConfig) -> Tensor:
    """[B, L] bool: the open positions that this step writes."""
    return state.masked & (state.uniform("stay") >= stay_probability(state, config))


EMERGE = Rule(candidates, write_all, ScheduleConfig, fixed=True)
