"""What a mask strategy is, the options that all of them have, and what they draw with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from mmrl.config import Settings, above, at_least, check
from mmrl.randomness import as_generators
from mmrl.types import Canvas, Passes, Rollout

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(kw_only=True)
class MaskConfig(Settings):
    """Options of every strategy."""

    where: ClassVar[str] = "algorithm"

    num_draws: Annotated[int, at_least(1)] = 1
    """Mask draws per inner iteration; pairs for complementary, nodes for quadrature."""
    num_iterations: Annotated[int, at_least(1)] = 1
    """Inner iterations per batch of rollouts, one optimiser step each."""
    prompt_mask_rate: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Share of prompt tokens hidden as well; they are never scored."""
    block_size: Annotated[int | None, at_least(1)] = None
    """Response positions per block (mask: blockwise, ratio_level: block)."""


@dataclass(kw_only=True)
class RisingRateConfig(MaskConfig):
    """Options of strategies whose rate rises over the inner iterations."""

    min_mask_rate: Annotated[float, at_least(0, up_to=1)] = 0.0
    """Lowest share of hidden positions. random and ar_like rise from it to all over num_iterations,
    so that it changes nothing where that is 1."""


@dataclass(kw_only=True)
class RateRangeConfig(RisingRateConfig):
    """Options of strategies that draw the rate from a range."""

    max_mask_rate: Annotated[float, above(0, up_to=1)] = 1.0
    """Highest share of hidden positions, where the share is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.min_mask_rate, self.max_mask_rate
        check(low <= high, "algorithm.max_mask_rate", high, f"at least min_mask_rate, {low:g}")


def one_per_draw(config: MaskConfig, steps: int, length: int) -> int:
    """Passes of a strategy that makes one of each draw."""
    return config.num_draws


class Draw(NamedTuple):
    """What the masks of an inner iteration (0 .. num_iterations - 1) are drawn with."""

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
    """A row of `MASKS`.

    `plan(rollout, config, draw)` makes the passes; `config` has the options of the strategy's
    `Config`. `number(config, steps, length)`: how many passes there are at most for so
    many denoising steps and response positions. `needs_blocks`: `block_size` must be set.
    `ordered`: the passes follow an order of writing, so neither several draws nor hidden prompt
    tokens make sense; `reads_trace`: the order is the recorded one.
    """

    plan: Callable[[Rollout, Any, Draw], Passes]
    Config: type[MaskConfig] = MaskConfig
    number: Callable[[Any, int, int], int] = one_per_draw
    needs_blocks: bool = False
    ordered: bool = False
    reads_trace: bool = False

    def __call__(
        self,
        rollout: Rollout,
        config: MaskConfig,
        generators: Sequence[Generator],
        iteration: int = 0,
    ) -> Passes:
        """The passes of one inner iteration; arguments of `mmrl.algorithms.draw_masks`."""
        draw = Draw(as_generators(generators), iteration)
        passes = self.plan(rollout, config, draw)
        canvas, size = rollout.canvas, config.block_size
        if config.prompt_mask_rate > 0:
            passes = hide_prompt(passes, canvas, config.prompt_mask_rate, draw)
        blocks = None if size is None else canvas.split(size)
        return replace(passes, length=canvas.scorable.sum(-1), blocks=blocks)


def passes_of(
    canvas: Canvas, hidden: Sequence[Tensor], weight: Sequence[Tensor] | None = None
) -> Passes:
    """Passes that score every hidden position that counts.

    Response positions that do not count (after the end of a text) are hidden too: their tokens
    would reveal where the text ends.

    Args:
        canvas: B rows.
        hidden: K masks [B, L] bool.
        weight: K weights [B, L], 1 if not given.
    """
    import torch

    masks = torch.stack(list(hidden))
    scored = masks & canvas.scorable
    weights = scored.float() if weight is None else torch.stack(list(weight)).float() * scored
    return Passes(masks | (canvas.response & ~canvas.scorable), scored, weights)


def hide_prompt(passes: Passes, canvas: Canvas, rate: float, draw: Draw) -> Passes:
    """Hide prompt tokens as well, each with probability `rate` (d1, SPG)."""
    import torch

    prompt = ~canvas.response if canvas.attend is None else ~canvas.response & canvas.attend
    noise = [draw.uniforms(prompt) for _ in range(len(passes))]
    hidden = (torch.stack(noise) < rate) & prompt
    return replace(passes, hidden=passes.hidden | hidden)


def hide_at(
    level: Tensor, where: Tensor, config: RateRangeConfig, draw: Draw
) -> tuple[Tensor, Tensor]:
    """Hide a number of positions, uniform over its range where `level` [B] is uniform.

    The range is low n .. high n, at least 1, with n the True entries of a row of `where` and the
    shares low and high of the options.

    Returns:
        [B, L] bool, each set of positions equally likely, and their number [B] int64.
    """
    number = where.sum(-1).double()
    # products such as 0.1 x 10 must not be pushed over the next integer by rounding
    first = (config.min_mask_rate * number - 1e-9).ceil().clamp(min=1)
    last = (config.max_mask_rate * number + 1e-9).floor().maximum(first)
    counts = (first + (level * (last - first + 1)).floor()).minimum(last).long()
    place = draw.uniforms(where).masked_fill(~where, 2.0).argsort(-1).argsort(-1)
    return (place < counts[:, None]) & where, counts


def at_least_one(hidden: Tensor, uniforms: Tensor, where: Tensor) -> Tensor:
    """`hidden` [B, L], with the lowest-drawn position of a row that hides nothing."""
    first = uniforms.masked_fill(~where, 2.0).argmin(-1, keepdim=True)
    alone = hidden.new_zeros(hidden.shape).scatter(-1, first, True)
    return (hidden | (alone & ~hidden.any(-1, keepdim=True))) & where
