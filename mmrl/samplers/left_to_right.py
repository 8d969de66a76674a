"""Left to right: every step writes its even share of a block, the first open positions first.

With as many steps as positions it is autoregressive decoding by a bidirectional model. Which
positions a step writes is known before its forward, so logits are computed there only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.samplers.confidence import quota
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import Proposal, State
from mmrl.samplers.tokens import draw, draw_reference


def candidates(state: State) -> Tensor:
    """[B, L] bool: the first open positions of each row, as many as its share."""
    return state.masked & (state.masked.cumsum(1) <= quota(state)[:, None])


def propose(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """Draw a token for each candidate; all of them are written."""
    tokens = draw(state, where, prediction)
    return Proposal(tokens, torch.ones_like(tokens, dtype=torch.bool))


def propose_reference(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """The same order with LLaDA's draws."""
    tokens = draw_reference(state, where, prediction)
    return Proposal(tokens, candidates(state)[where])
