"""MaskGIT: write the most confident draws, with annealed noise on confidence (arXiv 2202.04200).

As in MMaDA's image sampler: tokens are drawn at every open position, their confidence is
log p + tau Gumbel, and the n alpha(r) least confident stay masked, r = (s + 1) / S. tau is
multiplied by 1 - r at every step, so it falls as the product of these factors; with `annealing:
linear` it falls from T in the first step to 0 in the last, as in diffusers' `AmusedScheduler`.
Deviation from the public code: the last step writes every position (there one mask may stay in the
canvas while the returned codes are complete).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from mmrl.config import at_least
from mmrl.positions import Positions
from mmrl.samplers.noise import gumbel
from mmrl.samplers.rule import Prediction, Proposal, Rule, State, draw_tokens
from mmrl.samplers.schedule import ScheduleConfig, alpha

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class MaskgitConfig(ScheduleConfig):
    """Options of the MaskGIT rule."""

    choice_temperature: Annotated[float, at_least(0)] = 1.0
    """Starting scale of the Gumbel noise on the confidence."""
    annealing: Literal["product", "linear"] = "product"
    """How that scale falls over the steps: as MMaDA's, or linearly as aMUSEd's."""


def candidates(state: State, config: MaskgitConfig) -> Tensor:
    """[B, L] bool: every open position, since all of them compete."""
    return state.masked


def propose(
    state: State, where: Positions, prediction: Prediction, config: MaskgitConfig
) -> Proposal:
    """Draw a token for each open position and write the most confident."""
    tokens = draw_tokens(state, where, prediction)
    noise = gumbel(where.take(state.uniform("gumbel")))
    sure = prediction.score(Prediction.drawn_probability, tokens)
    return keep_confident(state, where, sure, tokens, noise, config)


def keep_confident(
    state: State,
    where: Positions,
    sure: Tensor,
    tokens: Tensor,
    noise: Tensor,
    config: MaskgitConfig,
) -> Proposal:
    """Write the tokens whose noisy confidence reaches the row's cut.

    Args:
        state: of the step.
        where: N positions, with all open ones among them.
        sure: [N] probabilities of the tokens.
        tokens: [N] columns drawn there.
        noise: [N] standard Gumbel noise.
        config: schedule and scale of the noise.
    """
    open_ = where.take(state.masked)
    if state.last:
        return Proposal(tokens, open_)
    scale = noise_scale(state, config)
    confidence = sure.clamp(min=1e-20).log() + scale * noise
    score = where.spread(confidence.masked_fill(~open_, math.inf), math.inf)
    cut = score.sort(dim=1).values.gather(1, stay_counts(state, config)[:, None])
    return Proposal(tokens, where.take(score >= cut) & open_)


def noise_scale(state: State, config: MaskgitConfig) -> float:
    """tau of this step: T times the product of 1 - (i + 1) / S over the steps so far, or, where it
    falls linearly, times 1 - s / (S - 1); a single step has T."""
    if config.annealing == "linear":
        return config.choice_temperature * (1 - state.step / max(1, state.block.steps - 1))
    factors = (1 - (i + 1) / state.block.steps for i in range(state.step + 1))
    return config.choice_temperature * math.prod(factors)


def stay_counts(state: State, config: MaskgitConfig) -> Tensor:
    """[B] int64: how many positions of each row stay masked after this step."""
    share = alpha(config.schedule, state.step + 1, state.block.steps)
    quota = (state.block.positions.sum(1) * share).floor().long()
    return quota.minimum(state.masked.sum(1) - 1).clamp(min=1)


def score(prediction: Prediction, tokens: Tensor, config: MaskgitConfig) -> Tensor:
    """[N] probability with which each token was drawn."""
    return prediction.drawn_probability(tokens)


MASKGIT = Rule(candidates, propose, MaskgitConfig, score=score, fixed=True, streams=True)
