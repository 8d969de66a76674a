"""What a strategy is: how finished rollouts are shown to a policy again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from mmrl.config import Settings, at_least
from mmrl.randomness import as_generators
from mmrl.types import Passes, Rollout

if TYPE_CHECKING:
    from torch import Generator, Tensor


OF_PROMPT = "prompt"
"""The `block_size` that is of each prompt its own."""


@dataclass(kw_only=True)
class StrategyConfig(Settings):
    """Options of every strategy."""

    where: ClassVar[str] = "algorithm"

    num_draws: Annotated[int, at_least(1)] = 1
    """Draws per inner iteration; pairs for complementary, nodes for quadrature."""
    num_iterations: Annotated[int, at_least(1)] = 1
    """Inner iterations per batch of rollouts, one optimiser step each."""
    block_size: Annotated[int | str | None, at_least(1, or_word=OF_PROMPT)] = None
    """Response positions per block (strategy: blockwise, ratio_level: block); `prompt` as in the
    sampler."""


class Draw(NamedTuple):
    """What the passes of an inner iteration (0 .. num_iterations - 1) are drawn with."""

    generators: Sequence[Generator]
    iteration: int = 0

    def uniforms(self, where: Tensor) -> Tensor:
        """[B, L] uniforms at the True entries of `where` (0 elsewhere), row by row."""
        import torch

        out = torch.zeros(where.shape, device=where.device)
        counts = where.sum(1).tolist()
        draws = [torch.rand(n, generator=g) for n, g in zip(counts, self.generators, strict=True)]
        out[where] = torch.cat(draws).to(where.device)
        return out

    def levels(self, where: Tensor) -> Tensor:
        """[B] float64 uniforms in [0, 1), one per row of `where`."""
        import torch

        draws = [torch.rand(1, generator=g, dtype=torch.float64) for g in self.generators]
        return torch.cat(draws).to(where.device)


class Strategy(NamedTuple):
    """A row of `Generation.strategies`.

    `plan(rollout, config, draw)` makes the passes; `config` has the options of the strategy's
    `Config`. `number(config, steps, length)`: how many passes there are at most for so
    many denoising steps and response positions. `needs_blocks`: `block_size` must be set.
    `ordered`: the passes follow an order of writing, which is not drawn; `reads_trace`: the order
    is the recorded one. `of_forks`: only actions that were drawn are scored. `of_steps`: actions
    are denoising steps of a latent, drawn from Gaussians.
    `of_predictions`: velocities are compared, so no step needs a log-prob. `of_finished`: passes
    finish latents again, from the states of a walk without noise, and rewards are followed by their
    gradient.
    """

    plan: Callable[[Rollout, Any, Draw], Passes]
    Config: type[StrategyConfig] = StrategyConfig
    number: Callable[[Any, int, int], int] = lambda config, steps, length: config.num_draws
    needs_blocks: bool = False
    ordered: bool = False
    reads_trace: bool = False
    of_forks: bool = False
    of_steps: bool = False
    of_predictions: bool = False
    of_finished: bool = False

    def __call__(
        self,
        rollout: Rollout,
        config: StrategyConfig,
        generators: Sequence[Generator],
        iteration: int = 0,
    ) -> Passes:
        """The passes of one inner iteration; arguments of `mmrl.estimators.draw_passes`."""
        canvas, size = rollout.canvas, config.block_size
        passes = self.plan(rollout, config, Draw(as_generators(generators), iteration))
        blocks = None if size is None else canvas.split(size)
        return replace(passes, length=canvas.counted.sum(-1), blocks=blocks)
