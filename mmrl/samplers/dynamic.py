"""Dynamic: every step writes all positions at least as certain as a threshold, at least one.

Fast-dLLM's parallel decoding (arXiv 2505.22618). The last step of a block writes what is left, so
with fewer steps than positions no mask remains; with as many the rule is the public one.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.samplers.confidence import most_certain, score
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import Proposal, State
from mmrl.samplers.tokens import draw, draw_reference


def candidates(state: State) -> Tensor:
    """[B, L] bool: every open position of the block, since all of them compete."""
    return state.masked


def propose(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """Draw a token for each open position and keep those that are certain enough."""
    return _keep(state, where, prediction, draw(state, where, prediction))


def propose_reference(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """The same with the public draws."""
    return _keep(state, where, prediction, draw_reference(state, where, prediction))


def _keep(state: State, where: Tensor, prediction: Prediction, tokens: Tensor) -> Proposal:
    open_ = state.masked[where]
    if state.step == state.steps - 1:
        return Proposal(tokens, open_)
    scores = score(state, where, prediction, tokens)
    best = most_certain(state, where, scores, state.masked.any(1).long())
    return Proposal(tokens, (best | (scores >= prediction.settings.threshold)) & open_)
