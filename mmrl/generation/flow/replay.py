"""The strategy `replay`: recorded denoising steps are shown again, one in each pass.

Of a step the policy sees the state before it, and is asked for the state after it as it is stored.
Flow-GRPO (arXiv 2505.05470) trains all stochastic steps; with a window of few of them this is its
fast form; DanceGRPO (arXiv 2505.07818) trains a part, drawn for each rollout.

The policy's terms of steps may have weights. With s the deviation of a step and dt < 0 the change
of the noise level sigma,

    tempflow   2.25 s: steps that draw more noise count more (TempFlow-GRPO, arXiv 2508.04324)
    flash      1 / (-dt / s + s (1 - sigma) / (2 sigma)), divided by its mean over the steps that
               could have been trained: what it divides by is the size of the gradient of a step's
               log-prob by the velocity (Flash-GRPO, arXiv 2605.15980)

A new weight is a function and a line in `STEP_WEIGHTS`. This file is read without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import TYPE_CHECKING, Annotated

from mmrl.config import above, one_of
from mmrl.generation.flow.query import LatentQuery
from mmrl.generation.flow.sampler_config import FlowConfig
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.types import Gaussian, Passes, Rollout, Scores

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.flow.canvas import LatentCanvas


def tempflow(sigmas: Tensor, deviation: Tensor, pool: Tensor) -> Tensor:
    """By the noise of a step."""
    return 2.25 * deviation


def flash(sigmas: Tensor, deviation: Tensor, pool: Tensor) -> Tensor:
    """By the inverse of the gradient of a step; the mean over the pool is 1."""
    sigma, interval = sigmas[:, :-1], -sigmas.diff()
    given = deviation > 0
    noise = deviation.where(given, 1.0)
    raw = (1 / (interval / noise + noise * (1 - sigma) / (2 * sigma))).where(given, 0.0)
    mean = (raw * pool).sum(-1, keepdim=True) / pool.sum(-1, keepdim=True)
    return raw / mean


STEP_WEIGHTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "flash": flash,
    "tempflow": tempflow,
}
"""Step weights by the name used in configurations: functions from noise levels [B, S + 1] float32
from 1 to 0, the deviation [B, S] of each number of the latent in a step, 0 where it draws nothing,
and the pool [B, S] bool of steps from which those that draw were chosen, to the weights [B, S]. Of
the chosen alone, a single one, `flash` would be 1. No row depends on another.
"""


@dataclass(kw_only=True)
class ReplayConfig(StrategyConfig):
    """Which recorded steps are trained, and with what weight."""

    timestep_fraction: Annotated[float, above(0, up_to=1)] = 1.0
    """Share of a rollout's stochastic steps that are trained, drawn anew in each inner iteration;
    what is kept is rounded up."""
    step_weights: Annotated[str | None, one_of(STEP_WEIGHTS)] = None
    """What the policy's term of a step is multiplied by: tempflow or flash, see
    `mmrl.generation.flow.replay`; null for 1."""


@dataclass
class AtStep(LatentQuery):
    """A query of `mmrl.types.Query`: the step `step` [K, B] int64 that each row takes again, by the
    kernel and noise level of the sampler."""

    step: Tensor
    kernel: str
    noise_level: float

    def show(self, canvas: LatentCanvas, k: int) -> tuple[Tensor, Tensor]:
        """The state [B, D] before the step of each row, and its noise level [B]."""
        path, sigmas = canvas.written
        rows, step = canvas.rows, self.step[k]
        return path[rows, step], sigmas[rows, step]

    def read(
        self, canvas: LatentCanvas, k: int, state: Tensor, sigma: Tensor, velocity: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-prob [B], mean [B, D], deviation [B] and interval [B] of the step, by the velocity
        [B, D] at its state."""
        from mmrl.generation.flow.transitions import Step, logprob_of, predict

        (path, sigmas), rows, step = canvas.written, canvas.rows, self.step[k]
        target, following = path[rows, step + 1, : state.shape[1]], sigmas[rows, step + 1]
        known = Step(state, velocity, sigma, following, self.noise_level, sigmas[:, 1])
        mean, deviation = predict(self.kernel, known)
        logprob = logprob_of(self.kernel, target, mean, deviation)
        return logprob, mean, deviation, sigma - following

    def collect(self, found: Sequence[Tensor], scored: Tensor, size: Tensor) -> Scores:
        """Log-probs and Gaussians of the steps."""
        logprob, *moments = found
        return Scores(logprob[..., None] * scored, gaussian=Gaussian(*moments, size=size))


def plan_replay(rollout: Rollout, config: ReplayConfig, draw: Draw) -> Passes:
    """One pass per trained step of a row; rows with fewer have empty passes at the end. Raises
    ValueError: a row without a stochastic step."""
    import torch

    counted = rollout.canvas.counted
    if not bool(counted.any(-1).all()):
        raise ValueError("strategy: replay needs stochastic steps, and a rollout has none")
    trained = choose_part(counted, config.timestep_fraction, draw)
    number = int(trained.sum(-1).max())
    order = trained.byte().argsort(dim=-1, descending=True, stable=True)[:, :number].T
    used = trained.T.gather(0, order)
    scored = torch.zeros(*order.shape, counted.shape[1], dtype=torch.bool, device=order.device)
    scored.scatter_(-1, order[..., None], used[..., None])
    query = AtStep(order, rollout.settings["name"], rollout.settings["noise_level"])
    factor = None if config.step_weights is None else weigh_steps(rollout, config.step_weights)
    return Passes(query, scored, scored.float() * number, factor=factor)


def weigh_steps(rollout: Rollout, name: str) -> Tensor:
    """[B, S] the weights of all steps by the kernel and noise level of the sampler, whose range of
    stochastic steps is the pool of `STEP_WEIGHTS`."""
    from mmrl.generation.flow.transitions import Step, predict

    settings, (_, sigmas) = rollout.settings, rollout.canvas.written
    window = FlowConfig(**{f.name: settings[f.name] for f in fields(FlowConfig)})
    low, high, _ = window.find_place(sigmas.shape[1] - 1)
    here, following, highest = sigmas[:, :-1], sigmas[:, 1:], sigmas[:, 1:2]
    level = highest.new_full((), settings["noise_level"])
    numbers = [each.expand_as(here).flatten() for each in (here, following, level, highest)]
    nothing = here.new_zeros(here.numel(), 1)
    deviation = predict(settings["name"], Step(nothing, nothing, *numbers))[1].view_as(here)
    place = deviation.new_ones(deviation.shape).cumsum(1) - 1
    return STEP_WEIGHTS[name](sigmas, deviation, (place >= low) & (place < high))


def choose_part(counted: Tensor, fraction: float, draw: Draw) -> Tensor:
    """[B, S] bool: a share of the counted steps of each row, rounded up; all of them where it is
    1."""
    if fraction == 1:
        return counted
    kept = (counted.sum(-1, keepdim=True) * fraction - 1e-9).ceil()
    place = draw.uniforms(counted).masked_fill(~counted, 2.0).argsort(dim=-1).argsort(dim=-1)
    return counted & (place < kept)


REPLAY = Strategy(
    plan_replay,
    ReplayConfig,
    number=lambda config, steps, length: max(1, ceil(steps * config.timestep_fraction - 1e-9)),
    ordered=True,
    reads_trace=True,
    of_steps=True,
)
