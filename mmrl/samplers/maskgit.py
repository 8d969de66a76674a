"""MaskGIT: write the most confident draws, with annealed noise on confidence (arXiv 2202.04200).

As in MMaDA's image sampler: tokens are drawn at every open position, their confidence is
log p + tau Gumbel, and the n alpha(r) least confident stay masked, r = (s + 1) / S. tau is
multiplied by 1 - r at every step, so it falls as the product of these factors, not linearly.
Deviation from the public code: the last step writes every position (there one mask may stay in the
canvas while the returned codes are complete).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mmrl.samplers.confidence import probability
from mmrl.samplers.noise import gumbel
from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import Proposal, State
from mmrl.samplers.tokens import draw


def candidates(state: State) -> Tensor:
    """[B, L] bool: every open position, since all of them compete."""
    return state.masked


def propose(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """Draw a token for each open position and keep the most confident."""
    tokens = draw(state, where, prediction)
    noise = gumbel(state.uniform("gumbel")[where])
    return _keep(state, where, prediction.probs, tokens, noise)


def propose_reference(state: State, where: Tensor, prediction: Prediction) -> Proposal:
    """The same with the public order and shapes of the draws: tokens, then noise, over all n."""
    probs = prediction.probs
    tokens = torch.multinomial(probs, 1, generator=state.reference).squeeze(-1)
    shape = (len(state.masked), -1)
    uniforms = torch.empty(probs.shape[0]).view(shape).uniform_(0, 1, generator=state.reference)
    return _keep(state, where, probs, tokens, gumbel(uniforms.flatten().to(probs.device)))


def temperature(state: State) -> float:
    """tau of this step: T times the product of 1 - (i + 1) / S over the steps so far."""
    return state.temperature * math.prod(1 - (i + 1) / state.steps for i in range(state.step + 1))


def _keep(state: State, where: Tensor, probs: Tensor, tokens: Tensor, noise: Tensor) -> Proposal:
    """Write the candidates whose noisy confidence reaches the row's cut."""
    confidence = torch.log(probability(probs, tokens).clamp(min=1e-20)) + temperature(state) * noise
    score = torch.full(where.shape, torch.inf, dtype=confidence.dtype, device=where.device)
    score[where] = torch.where(state.masked[where], confidence, torch.inf)
    if state.step == state.steps - 1:
        return Proposal(tokens, state.masked[where])
    cut = score.sort(dim=1).values.gather(1, stay_counts(state)[:, None])
    return Proposal(tokens, (score >= cut)[where] & state.masked[where])


def stay_counts(state: State) -> Tensor:
    """[B] int64: how many positions of each row stay masked after this step."""
    share = state.alpha(state.step + 1)
    quota = torch.floor(state.response.sum(1).cpu() * share).long()
    left = state.masked.sum(1) - 1
    return quota.to(left.device).minimum(left).clamp(min=1)
