"""What a mask strategy is, what it may use, and what is the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from mmrl.types import Canvas, Passes, Rollout

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(frozen=True)
class Draw:
    """What a strategy may use besides the rollout.

    Attributes:
        iteration: inner iteration, 0 .. num_iterations - 1.
        num_iterations: how often each rollout is used.
        num_draws: draws per inner iteration.
        min_mask_rate: lowest share of hidden positions.
        generators: one per row.
        max_mask_rate: highest share of hidden positions.
        prompt_mask_rate: share of prompt tokens hidden besides, never scored.
        include_full: whether a complementary pair comes with a pass that hides everything.
        block_size: response positions per block, None where there are no blocks.
        slice_size: recorded steps (or positions, left to right) scored in one pass.
        num_slices: cut the order into this many slices instead.
        sampled_slices: score only so many slices of each row, drawn at random.
        position: whether the order in which positions were written is scored too.
    """

    iteration: int
    num_iterations: int
    num_draws: int
    min_mask_rate: float
    generators: Sequence[Generator]
    max_mask_rate: float = 1.0
    prompt_mask_rate: float = 0.0
    include_full: bool = False
    block_size: int | None = None
    slice_size: int = 1
    num_slices: int | None = None
    sampled_slices: int | None = None
    position: bool = False


def one_per_draw(draw: Draw, steps: int, length: int) -> int:
    """Passes of a strategy that makes one of each draw."""
    return draw.num_draws


class Strategy(NamedTuple):
    """A row of `MASKS`.

    `module` has `plan`, which makes the passes, and where they are not one per draw `number`.
    `ordered`: the passes follow an order of writing, so neither several draws nor hidden prompt
    tokens make sense; `reads_trace`: the order is the recorded one; `reads`: the fields of `Draw`
    about rates and slices that `plan` looks at.
    """

    module: str
    needs_blocks: bool = False
    ordered: bool = False
    reads_trace: bool = False
    reads: tuple[str, ...] = ()

    def number(self, draw: Draw, steps: int, length: int) -> int:
        """How many passes there are at most.

        Args:
            draw: settings.
            steps: denoising steps.
            length: response positions.
        """
        count = getattr(import_module(self.module), "number", one_per_draw)
        return count(draw, steps, length)

    def __call__(self, rollout: Rollout, draw: Draw) -> Passes:
        """The passes of `plan`, with what is the same for all strategies."""
        passes = import_module(self.module).plan(rollout, draw)
        if draw.prompt_mask_rate > 0:
            passes = with_prompt_noise(passes, rollout.canvas, draw)
        canvas = rollout.canvas
        blocks = None if draw.block_size is None else blocks_of(canvas, draw.block_size)
        return replace(passes, length=canvas.scorable.sum(-1), blocks=blocks)


def passes_of(canvas: Canvas, hidden: Tensor, weight: Tensor | None = None) -> Passes:
    """Passes that score every hidden position that counts.

    Response positions that do not count (after the end of a text) are hidden too: what stood there
    would tell where the text ends.

    Args:
        canvas: B rows.
        hidden: [K, B, L] bool.
        weight: [K, B, L] float32, 1 if not given.
    """
    scored = hidden & canvas.scorable
    weight = scored.float() if weight is None else weight * scored
    return Passes(hidden | (canvas.response & ~canvas.scorable), scored, weight)


def with_prompt_noise(passes: Passes, canvas: Canvas, draw: Draw) -> Passes:
    """Hide prompt tokens as well, each with probability `prompt_mask_rate` (d1, SPG)."""
    import torch

    from mmrl.estimators.masks.draws import row_uniforms

    prompt = ~canvas.response if canvas.attend is None else ~canvas.response & canvas.attend
    noise = [row_uniforms(prompt, draw.generators) for _ in range(len(passes))]
    hidden = (torch.stack(noise) < draw.prompt_mask_rate) & prompt
    return replace(passes, hidden=passes.hidden | hidden)


def blocks_of(canvas: Canvas, size: int) -> Tensor:
    """[B, L] int64: the block of each response position, counted from the first; -1 elsewhere."""
    place = canvas.response.cumsum(-1) - 1
    return (place // size).where(canvas.response, -1)
