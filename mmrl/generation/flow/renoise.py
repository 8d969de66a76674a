"""The strategy `renoise`: finished latents are noised again, to one level in each pass.

A pass shows x = (1 - sigma) x0 + sigma noise, and asks for the velocity noise - x0, as the loss did
by which the model was trained. What was recorded on the way to the sample is not read, so any
sampler will do. With e the error of the velocity, its log-prob is minus the mean of e^2, weighed by
`matching` (AWM, arXiv 2509.25050).

    uniform   1 e^2          sigma    sigma e^2          sigma2    sigma^2 e^2
    huber     sigma (sqrt(e^2 + 1e-10) - 1e-5)
    ghuber    sigma ((e^2 + 1e-10)^p - 1e-10^p) / p, p = 0.25

This file is read without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from mmrl.config import one_of
from mmrl.generation.flow.query import LatentQuery
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.types import Passes, Prediction, Rollout, Scores

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.flow.canvas import LatentCanvas

SMALL, POWER = 1e-10, 0.25
MATCHING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "uniform": lambda error, sigma: error,
    "sigma": lambda error, sigma: error * sigma,
    "sigma2": lambda error, sigma: error * sigma.square(),
    "huber": lambda error, sigma: sigma * ((error + SMALL).sqrt() - SMALL**0.5),
    "ghuber": lambda error, sigma: sigma * ((error + SMALL) ** POWER - SMALL**POWER) / POWER,
}
"""What is made of the mean squared error [B] of a velocity at noise levels [B], by name."""


@dataclass(kw_only=True)
class RenoiseConfig(StrategyConfig):
    """At which noise levels latents are shown again, and how their errors are weighed."""

    levels: Literal["steps", "uniform"] = "steps"
    """Where the `num_draws` levels come from: those of the sampler's steps, without one drawn twice
    for a rollout; or one drawn in each of as many equal parts of [0, 1]."""
    matching: Annotated[str, one_of(MATCHING)] = "uniform"
    """Weight of the squared error that takes the place of a log-prob, see
    `mmrl.generation.flow.renoise`."""


@dataclass
class Noised(LatentQuery):
    """A query of `mmrl.types.Query`: finished latents at `sigma` [K, B] float32 with `noise`
    [K, B, D] float32."""

    sigma: Tensor
    noise: Tensor
    matching: str = "uniform"

    def show(self, canvas: LatentCanvas, k: int) -> tuple[Tensor, Tensor]:
        """The noised latents [B, D], and their noise level [B]."""
        finished, level = canvas.finished, self.sigma[k, :, None]
        shown = (1 - level) * finished + level * self.noise[k]
        return shown.to(finished.dtype), self.sigma[k]

    def read(
        self, canvas: LatentCanvas, k: int, state: Tensor, sigma: Tensor, velocity: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Minus the weighed error [B] in the place of a log-prob, the error [B, D] of the velocity,
        and the level [B]."""
        number = state.shape[1]
        error = velocity - (self.noise[k, :, :number] - canvas.finished[:, :number])
        return -MATCHING[self.matching](error.square().mean(1), sigma), error, sigma

    def collect(self, found: Sequence[Tensor], scored: Tensor, size: Tensor) -> Scores:
        """Weighed errors in the place of log-probs, and the predictions."""
        logprob, *moments = found
        return Scores(logprob[..., None] * scored, prediction=Prediction(*moments, size=size))


def plan_renoise(rollout: Rollout, config: RenoiseConfig, draw: Draw) -> Passes:
    """One pass per level; the action it scores is the first, in the place of the sample."""
    import torch

    (path, sigmas), number = rollout.canvas.written, config.num_draws
    device, (rows, states, width) = path.device, path.shape
    if config.levels == "steps":
        every = torch.ones(rows, states - 1, dtype=torch.bool, device=device)
        order = draw.uniforms(every).argsort(dim=-1)[:, :number]
        level = sigmas[:, :-1].gather(1, order).T
    else:
        drawn = torch.stack([draw.levels(path[:, 0, 0]) for _ in range(number)])
        parts = torch.arange(number, device=device)[:, None]
        level = ((drawn + parts) / number).float()
    noise = torch.stack(
        [torch.randn(len(level), width, generator=each) for each in draw.generators], 1
    )
    scored = torch.zeros(len(level), rows, states - 1, dtype=torch.bool, device=device)
    scored[..., 0] = True
    query = Noised(level, noise.to(device), config.matching)
    return Passes(query, scored, scored.float() * len(level))


RENOISE = Strategy(
    plan_renoise,
    RenoiseConfig,
    number=lambda config, steps, length: (
        min(config.num_draws, steps) if config.levels == "steps" else config.num_draws
    ),
    of_predictions=True,
)
