"""Lumina-DiMOO's image sampler: write the most confident draws, with constant noise on confidence.

As `maskgit` (`mmrl.samplers.maskgit`) but for four things: of the n positions open at the start
max(1, n alpha(r)) stay masked, and none after the last step; confidence is that of the logits at
temperature 1, without filters; its noise has the scale of the temperature in every step; and of
equal scores the leftmost is written (the public code writes all).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.positions import Positions
from mmrl.samplers.confidence import most_certain
from mmrl.samplers.noise import gumbel
from mmrl.samplers.rule import Prediction, Proposal, Rule, State, draw_tokens
from mmrl.samplers.schedule import ScheduleConfig, alpha

if TYPE_CHECKING:
    from torch import Tensor


def candidates(state: State, config: ScheduleConfig) -> Tensor:
    """[B, L] bool: every open position, since all of them compete."""
    return state.masked


def propose(
    state: State, where: Positions, prediction: Prediction, config: ScheduleConfig
) -> Proposal:
    """Draw a token for each open position and write the most confident."""
    tokens = draw_tokens(state, where, prediction)
    noise = prediction.config.temperature * gumbel(where.take(state.uniform("gumbel")))
    scores = prediction.score(confidence, tokens) + noise
    return Proposal(tokens, most_certain(state, where, scores, write_counts(state, config)))


def confidence(prediction: Prediction, tokens: Tensor) -> Tensor:
    """[N] log-probability of each token in the model's own distribution."""
    return prediction.own_probability(tokens).clamp(min=1e-20).log()


def write_counts(state: State, config: ScheduleConfig) -> Tensor:
    """[B] int64: positions that a step writes in each row, at least one."""
    masked = state.masked.sum(1)
    if state.last:
        return masked
    share = alpha(config.schedule, state.step + 1, state.block.steps)
    stay = (state.opened.sum(1) * share).floor().long().clamp(min=1)
    return masked - stay.minimum(masked - 1)


def score(prediction: Prediction, tokens: Tensor, config: ScheduleConfig) -> Tensor:
    """`confidence`, as a function of the settings too."""
    return confidence(prediction, tokens)


LUMINA = Rule(candidates, propose, ScheduleConfig, score=score, streams=True)
