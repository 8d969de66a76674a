"""Emerge: the ancestral step of masked diffusion, MaskGRPO's image sampler (arXiv 2510.02880).

At step s of S an unwritten position stays masked with probability alpha_{s+1} / alpha_s, otherwise
it takes a draw from the model's categorical distribution; the last step writes whatever is left.
The joint draw of the public code, one categorical over C codes plus "stay", is the same
distribution as drawing "stay" first. Drawing it first tells which positions this step can write
before the forward, so logits are computed there only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import Proposal, State
from mmrl.samplers.tokens import draw


def stay_probability(state: State) -> Tensor:
    """Probability, 0-dim float32, that an open position stays masked in this step."""
    if state.step == state.steps - 1:
        return torch.zeros(())
    return state.alpha(state.step + 1) / state.alpha(state.step)


def candidates(state: State) -> Tensor:
    """[B, L] bool: the open positions that this step writes."""
    return state.masked & (state.uniform("stay") >= stay_probability(state))


def propose(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """Draw a token for each candidate; all of them are written."""
    tokens = draw(state, where, prediction)
    return Proposal(tokens, torch.ones_like(tokens, dtype=torch.bool))


def propose_reference(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """The public joint draw of a token or "stay masked".

    Where the mask token lies outside the response vocabulary (images), its weight is a column more,
    over [p (a_t - a_s) / a_t, a_s / a_t] at every response position. Where it is one of the columns
    (text), it is overwritten by a_s / a_t while the others get p (a_t - a_s): without the division
    the public text sampler writes too little at first and leaves the most for its last step.
    """
    if prediction.mask_column is not None:
        return _propose_text(state, where, prediction.probs, prediction.mask_column)
    probs = prediction.probs
    weights = probs
    if state.step < state.steps - 1:
        now, then = state.alpha(state.step), state.alpha(state.step + 1)
        stay = (then / now).expand(len(probs), 1).to(probs.device)
        weights = torch.cat((probs * ((now - then) / now), stay), dim=-1)
    drawn = torch.multinomial(weights, 1, generator=state.reference).squeeze(-1)
    written = (drawn < probs.shape[-1]) & state.masked[where]
    return Proposal(drawn.clamp(max=probs.shape[-1] - 1), written)


def _propose_text(state: State, where: Tensor, probs: Tensor, mask_column: int) -> Proposal:
    """Drawn over the whole canvas, as the public sampler does."""
    if state.step < state.steps - 1:
        now, then = state.alpha(state.step), state.alpha(state.step + 1)
        probs = probs * (now - then)
        probs[:, mask_column] = then / now
    weights = probs.new_ones(*where.shape, probs.shape[-1])
    weights[where] = probs
    drawn = torch.multinomial(weights.flatten(0, 1), 1, generator=state.reference)
    drawn = drawn.view(where.shape)[where]
    return Proposal(drawn, (drawn != mask_column) & state.masked[where])
