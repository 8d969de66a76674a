"""Rules that follow a masking schedule: emerge, maskgit and lumina.

alpha(t) is the share of positions still masked at time t in [0, 1]: cos(pi t / 2) (`cosine`,
MaskGIT, arXiv 2202.04200) or 1 - t (`linear`, MDLM, arXiv 2406.07524).

`emerge` is the ancestral step of masked diffusion, MaskGRPO's image sampler (arXiv 2510.02880): at
step s of S an unwritten position stays masked with probability alpha_{s+1} / alpha_s, otherwise it
takes a draw from the model's categorical distribution. The joint draw of the public code, one
categorical over C codes plus "stay", is the same distribution as drawing "stay" first, which tells
before the forward which positions this step can write: logits are computed there only.

`maskgit`, MMaDA's image sampler, draws tokens at every open position, their confidence is
log p + tau Gumbel, and the n alpha(r) least confident stay masked, r = (s + 1) / S. tau is
multiplied by 1 - r at every step, so it falls as the product of these factors; with
`annealing: linear` it falls from T in the first step to 0 in the last, as in diffusers'
`AmusedScheduler`. Deviation from the public code: the last step writes every position (there one
mask may stay in the canvas while the returned codes are complete).

`lumina`, Lumina-DiMOO's image sampler, differs in four things: of the n positions open at the start
max(1, n alpha(r)) stay masked, and none after the last step; confidence is that of the logits at
temperature 1, without filters; its noise has the scale of the temperature in every step; and of
equal scores the leftmost is written (the public code writes all).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from mmrl.config import at_least, one_of
from mmrl.generation.masked.samplers.confidence import most_certain
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import (
    Choice,
    Prediction,
    Rule,
    State,
    all_open,
    write_all,
)
from mmrl.generation.tokens.noise import gumbel
from mmrl.generation.tokens.positions import Positions

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine": lambda t: (t * math.pi * 0.5).cos(),
    "linear": lambda t: (1 - t).clamp(min=1e-6, max=1.0),
}


@dataclass(kw_only=True)
class ScheduleConfig(LoopConfig):
    """Options of rules that follow a masking schedule."""

    schedule: Annotated[str, one_of(SCHEDULES)] = "cosine"
    """Masking schedule: cosine or linear."""


@dataclass(kw_only=True)
class MaskgitConfig(ScheduleConfig):
    """Options of the MaskGIT rule."""

    choice_temperature: Annotated[float, at_least(0)] = 1.0
    """Starting scale of the Gumbel noise on the confidence."""
    annealing: Literal["product", "linear"] = "product"
    """How that scale falls over the steps: as MMaDA's, or linearly as aMUSEd's."""


def alpha(schedule: str, step: int, steps: int) -> Tensor:
    """Share of positions masked after `step` of `steps`, a 0-dim float32 tensor: in this precision
    the counts that follow from it are those of the public samplers."""
    import torch

    return SCHEDULES[schedule](torch.tensor(step / steps))


def emerging(state: State, config: ScheduleConfig) -> Tensor:
    """[B, L] bool: the open positions that this step of `emerge` writes."""
    if state.last:
        return state.masked
    now, then = (alpha(config.schedule, state.step + n, state.block.steps) for n in (0, 1))
    return state.masked & (state.uniform("stay") >= then / now)


def write_maskgit(state: State, where: Positions, choice: Choice, config: MaskgitConfig) -> Tensor:
    """[N] bool: the most confident positions."""
    noise = gumbel(where.take(state.uniform("gumbel")))
    return keep_confident(state, where, choice.scores, noise, config)


def keep_confident(
    state: State, where: Positions, sure: Tensor, noise: Tensor, config: MaskgitConfig
) -> Tensor:
    """[N] bool: the positions whose noisy confidence reaches the row's cut.

    Args:
        state: of the step.
        where: N positions, with all open ones among them.
        sure: [N] probabilities of the tokens drawn there.
        noise: [N] standard Gumbel noise.
        config: schedule and scale of the noise.
    """
    open_ = where.take(state.masked)
    if state.last:
        return open_
    confidence = sure.clamp(min=1e-20).log() + noise_scale(state, config) * noise
    score = where.spread(confidence.masked_fill(~open_, math.inf), math.inf)
    share = alpha(config.schedule, state.step + 1, state.block.steps)
    stay = (state.block.positions.sum(1) * share).floor().long()
    stay = stay.minimum(state.masked.sum(1) - 1).clamp(min=1)
    cut = score.sort(dim=1).values.gather(1, stay[:, None])
    return where.take(score >= cut) & open_


def noise_scale(state: State, config: MaskgitConfig) -> float:
    """tau of this step: T times the product of 1 - (i + 1) / S over the steps so far, or, where it
    falls linearly, times 1 - s / (S - 1); a single step has T."""
    if config.annealing == "linear":
        return config.choice_temperature * (1 - state.step / max(1, state.block.steps - 1))
    factors = (1 - (i + 1) / state.block.steps for i in range(state.step + 1))
    return config.choice_temperature * math.prod(factors)


def write_lumina(state: State, where: Positions, choice: Choice, config: ScheduleConfig) -> Tensor:
    """[N] bool: the most confident positions."""
    noise = choice.config.temperature * gumbel(where.take(state.uniform("gumbel")))
    return most_certain(state, where, choice.scores + noise, lumina_counts(state, config))


def lumina_counts(state: State, config: ScheduleConfig) -> Tensor:
    """[B] int64: positions that a step writes in each row, at least one."""
    masked = state.masked.sum(1)
    if state.last:
        return masked
    share = alpha(config.schedule, state.step + 1, state.block.steps)
    stay = (state.opened.sum(1) * share).floor().long().clamp(min=1)
    return masked - stay.minimum(masked - 1)


def drawn_probability(prediction: Prediction, columns: Tensor, config: MaskgitConfig) -> Tensor:
    """[N] probability with which each column was drawn."""
    return prediction.drawn_probability(columns)


def log_confidence(prediction: Prediction, columns: Tensor, config: ScheduleConfig) -> Tensor:
    """[N] log-probability of each column in the model's own distribution."""
    return prediction.own_probability(columns).clamp(min=1e-20).log()


EMERGE = Rule(emerging, write_all, ScheduleConfig, fixed=True)
MASKGIT = Rule(all_open, write_maskgit, MaskgitConfig, score=drawn_probability, fixed=True)
LUMINA = Rule(all_open, write_lumina, ScheduleConfig, score=log_confidence)
