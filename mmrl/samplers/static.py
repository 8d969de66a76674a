"""Static: every step writes its even share of a block, the most certain positions first.

LLaDA's low-confidence sampler (arXiv 2502.09992): a token is drawn at every open position, and
those of highest confidence are written. Confidence comes from the undisturbed distribution.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.samplers.confidence import most_certain, quota, score
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import Proposal, State
from mmrl.samplers.tokens import draw, draw_reference


def candidates(state: State) -> Tensor:
    """[B, L] bool: the open positions of rows that this step writes in; all of them compete."""
    return state.masked & (quota(state) > 0)[:, None]


def propose(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """Draw a token for each open position and keep the most certain."""
    return _keep(state, where, prediction, draw(state, where, prediction))


def propose_reference(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """The same with the public draws: token noise, then the ranks if those are random."""
    return _keep(state, where, prediction, draw_reference(state, where, prediction))


def _keep(state: State, where: Tensor, prediction: Prediction, tokens: Tensor) -> Proposal:
    scores = score(state, where, prediction, tokens)
    return Proposal(tokens, most_certain(state, where, scores, quota(state)))
