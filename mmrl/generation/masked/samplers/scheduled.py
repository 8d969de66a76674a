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
`AmusedScheduler`. Deviations from the public code: the last step writes every position (there one
mask may stay in the canvas while the returned codes are complete), and of equal scores the leftmost
(there all).

`lumina`, Lumina-DiMOO's image sampler, differs in three things: of the n positions open at the
start max(1, n alpha(r)) stay masked, and none after the last step; confidence is that of the logits
at temperature 1, without filters; and its noise has the scale of the temperature in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from mmrl.config import at_least, one_of
from mmrl.generation.masked.samplers.confidence import ranked
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import Prediction, Rule, State, write_all

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


def maskgit_counts(state: State, config: MaskgitConfig) -> Tensor:
    """[B] int64: positions that a step of `maskgit` writes in each row."""
    masked = state.masked.sum(1)
    if state.last:
        return masked
    stay = count_masked(state.block.positions, state, config).minimum(masked - 1).clamp(min=1)
    return masked - stay


def lumina_counts(state: State, config: ScheduleConfig) -> Tensor:
    """[B] int64: positions that a step of `lumina` writes in each row, at least one."""
    masked = state.masked.sum(1)
    if state.last:
        return masked
    return masked - count_masked(state.opened, state, config).clamp(min=1).minimum(masked - 1)


def count_masked(positions: Tensor, state: State, config: ScheduleConfig) -> Tensor:
    """[B] int64: how many of some positions [B, L] stay masked after this step."""
    share = alpha(config.schedule, state.step + 1, state.block.steps)
    return (positions.sum(1) * share).floor().long()


def noise_scale(state: State, config: MaskgitConfig) -> float:
    """tau of this step: T times the product of 1 - (i + 1) / S over the steps so far, or, where it
    falls linearly, times 1 - s / (S - 1); a single step has T."""
    if config.annealing == "linear":
        return config.choice_temperature * (1 - state.step / max(1, state.block.steps - 1))
    factors = (1 - (i + 1) / state.block.steps for i in range(state.step + 1))
    return config.choice_temperature * math.prod(factors)


def drawn_confidence(prediction: Prediction, columns: Tensor) -> Tensor:
    """[N] log-probability with which each column was drawn."""
    return prediction.drawn_probability(columns).clamp(min=1e-20).log()


def log_confidence(prediction: Prediction, columns: Tensor) -> Tensor:
    """[N] log-probability of each column in the model's own distribution."""
    return prediction.own_probability(columns).clamp(min=1e-20).log()


EMERGE = Rule(emerging, write_all, ScheduleConfig, fixed=True)
MASKGIT = ranked(maskgit_counts, drawn_confidence, MaskgitConfig, noise_scale, fixed=True)
LUMINA = ranked(
    lumina_counts, log_confidence, ScheduleConfig, lambda state, config: config.temperature
)
