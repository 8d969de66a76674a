"""The strategy `last_steps`: steps at the end of a rollout are taken again with a gradient, one in
each pass, so that the finished latent has one.

With the exit, the last of these steps, at noise level sigma and v the velocity at its state x, the
latent is finished as x - sigma v: by the ODE where the exit is the last step of all, and by the
clean prediction where it is an earlier one. What is shown are the recorded states, and nothing is
drawn but the exit.

    grad_steps 1, exit_range 0.25               ReFL (arXiv 2304.05977)
    grad_steps K, chained                       DRaFT-K (arXiv 2309.17400)
    grad_steps 1, num_draws n                   DRaFT-LV: the last step from n noisy copies
    grad_steps K, spread, exit_range            DRTune (arXiv 2405.00760)

Without `chained` the network's input has no gradient, so that the latent depends on each velocity
through the sum of the steps alone (DRTune). This file is read without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from mmrl.config import at_least, check
from mmrl.generation.flow.query import LatentQuery
from mmrl.generation.strategy import Draw, Strategy, StrategyConfig
from mmrl.types import Passes, Prediction, Rollout, Scores

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.flow.canvas import LatentCanvas


@dataclass(kw_only=True)
class LastStepsConfig(StrategyConfig):
    """Which steps are taken again; `num_draws` above 1 noises the finished latent again so often,
    to the level of the last step."""

    grad_steps: Annotated[int, at_least(1)] = 1
    """Denoising steps whose velocities have a gradient."""
    exit_range: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Share of the steps, at the end, of which the exit is drawn for each rollout; 0 exits after
    the last step."""
    spread: bool = False
    """Whether these steps are spread evenly up to the exit; else they are the last before it."""
    chained: bool = False
    """Whether the gradient passes through the states between them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        single = self.grad_steps == 1 and self.exit_range == 0
        allowed = "1; copies of a latent are noised for grad_steps 1 and exit_range 0"
        check(self.num_draws == 1 or single, "algorithm.num_draws", self.num_draws, allowed)
        allowed = "false; a gradient passes through states of consecutive steps"
        check(not (self.chained and self.spread), "algorithm.spread", self.spread, allowed)

    def count_exits(self, steps: int) -> int:
        """Of how many steps the exit is one."""
        return max(1, int(self.exit_range * steps + 1e-9))


@dataclass
class Retaken(LatentQuery):
    """A query of `mmrl.types.Query`: the `step` [K, B] int64 that each row takes again, in order;
    `noise` [K, B, D] float32 where it begins with the finished latent and this noise, None where
    with the recorded state. So many passes, `number`, finish a latent."""

    step: Tensor
    number: int
    chained: bool = False
    noise: Tensor | None = None

    def show(self, canvas: LatentCanvas, k: int) -> tuple[Tensor, Tensor]:
        """The state [B, D] before the step of each row, and its noise level [B]."""
        (path, sigmas), rows, step = canvas.written, canvas.rows, self.step[k]
        level = sigmas[rows, step]
        if self.noise is None:
            return path[rows, step], level
        noised = (1 - level[:, None]) * canvas.finished + level[:, None] * self.noise[k]
        return noised.to(path.dtype), level

    def read(
        self, canvas: LatentCanvas, k: int, state: Tensor, sigma: Tensor, velocity: Tensor
    ) -> tuple[Tensor, ...]:
        """0 [B] in the place of a log-prob; velocity and state [B, D]; level and change [B]."""
        (_, sigmas), rows, step = canvas.written, canvas.rows, self.step[k]
        return sigma * 0, velocity, state.float(), sigma, sigmas[rows, step + 1] - sigma

    def follow(self, canvas: LatentCanvas, k: int, found: Sequence[Tensor]) -> LatentCanvas:
        """The canvas with the state after the step, which has a gradient, where they are chained;
        who is scored without a gradient is shown what was recorded."""
        _, velocity, state, _, change = found
        if not (self.chained and velocity.requires_grad):
            return canvas
        (path, _), rows, step = canvas.written, canvas.rows, self.step[k]
        moved = (state + change[:, None] * velocity).to(path.dtype)
        return replace(canvas, path=path.index_put((rows, step + 1), moved))

    def collect(self, found: Sequence[Tensor], scored: Tensor, size: Tensor) -> Scores:
        """The velocities as predictions, and the finished latents."""
        nothing, velocity, state, sigma, change = found
        exits = slice(self.number - 1, None, self.number)
        finished = state[exits] - sigma[exits, :, None] * velocity[exits]
        if not self.chained:
            before = (change[..., None] * (velocity - velocity.detach()))[: self.number - 1]
            finished = finished + before.sum(0)
        known = Prediction(velocity, sigma, size)
        return Scores(nothing[..., None] * scored, prediction=known, finished=finished)


def plan_last_steps(rollout: Rollout, config: LastStepsConfig, draw: Draw) -> Passes:
    """One pass per step of a latent, in order, and per copy of it."""
    import torch

    (path, _), number = rollout.canvas.written, config.grad_steps
    device, (rows, states, width) = path.device, path.shape
    steps = states - 1
    exits = config.count_exits(steps)
    last = steps - exits + (draw.levels(path[:, 0, 0]) * exits).long()
    place = torch.arange(1, number + 1, device=device)[:, None]
    step = place * (last + 1) // number - 1 if config.spread else last - number + place
    noise = None
    if config.num_draws > 1:
        shape = config.num_draws, width
        noise = torch.stack([torch.randn(*shape, generator=g) for g in draw.generators], 1)
        step, noise = step.expand(len(noise), -1), noise.to(device)
    scored = torch.zeros(len(step), rows, steps, dtype=torch.bool, device=device)
    scored.scatter_(-1, step[..., None], True)
    query = Retaken(step, number, config.chained, noise)
    return Passes(query, scored, scored.float() * len(step))


LAST_STEPS = Strategy(
    plan_last_steps,
    LastStepsConfig,
    number=lambda config, steps, length: config.num_draws * config.grad_steps,
    of_predictions=True,
    of_finished=True,
)
