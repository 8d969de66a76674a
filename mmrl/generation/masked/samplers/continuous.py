"""Continuous batching: a row that ends leaves the batch, and the next row takes its place.

For networks whose attention is causal between blocks, with their exact cache. Every row of the
batch writes its own block, and all begin a block together. The cached columns of each row are
placed so that the blocks that are being written are the same columns of the cache:

    prompt | block | block | [block]        a row that began early
             prompt | block | [block]       one that began a block later
                      prompt | [block]      one that begins

So a pass computes one range of columns for all rows, and its keys and values are written in place.
Tokens are those of the same rows sampled in one batch: positions are counted within a row, and its
draws are named by its seed and its own steps. jetengine, the engine of SDAR, calls the size of the
batch `max_active`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.denoise import (
    begin_rollout,
    count_steps,
    fill_ended,
    find_scored,
    open_stream,
    write_block,
)
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import ResponseBlock, Rule, forbid
from mmrl.generation.tokens.positions import Positions
from mmrl.generation.tokens.scoring.logits import read_prompts
from mmrl.runtime.activity import activity
from mmrl.runtime.precision import share_casts
from mmrl.types import Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy

SLACK = 1.25
"""Columns of the cache, as a share of those of the longest row: it is moved when they are full."""


@torch.no_grad()
def denoise_continuously(
    policy: Policy,
    canvas: MaskedCanvas,
    config: LoopConfig,
    rule: Rule,
    generator: Generator | Sequence[Generator],
    size: int,
) -> Rollout:
    """Write every row of a canvas, at most `size` of them at once; see `mmrl.samplers.sample`."""
    rollout, seeds = begin_rollout(canvas, config, generator)
    stream = open_stream(policy, canvas, config, rule)
    with share_casts(policy, canvas.tokens.device), activity("rows", len(canvas)):
        batch = Batch(policy, rollout, config, size)
        while len(batch.rows):
            block = batch.open_block()
            write_block(batch, block, rule, [seeds[row] for row in batch.rows.tolist()], stream)
            batch.close_block(block)
    return batch.finish()


class Batch:
    """The rows of a canvas of which at most `size` are computed at once: `rows` [r] int64, in the
    range `columns` of the cache in the next pass. `rollout` is of all rows, `canvas.block_size`
    columns wider, which are no part of any row; `last` [B] int64 the last step of each row, and
    `passes` counts forward passes."""

    def __init__(self, policy: Policy, rollout: Rollout, config: LoopConfig, size: int) -> None:
        self.policy, self.config = policy, config
        canvas = rollout.canvas
        assert canvas.blocks is not None and canvas.block_size is not None
        assert rollout.drawn is not None, "the denoising loop keeps what is drawn"
        self.size, self.length = canvas.block_size, canvas.tokens.shape[1]
        wider = partial(F.pad, pad=(0, self.size))
        self.rollout = replace(
            rollout,
            canvas=replace(canvas, tokens=wider(canvas.tokens), response=wider(canvas.response)),
            trace=wider(rollout.trace, value=-1),
            logprobs=wider(rollout.logprobs),
            drawn=wider(rollout.drawn),
        )
        numbers = canvas.split(self.size)
        assert numbers is not None
        real = torch.ones_like(canvas.response) if canvas.attend is None else canvas.attend
        first = canvas.blocks.where(canvas.response, self.length).amin(1, keepdim=True)
        self.left = real.int().argmax(1)  # first column of each row
        self.begin = ((canvas.blocks == first) & real).int().argmax(1)  # of its first block
        self.count = numbers.amax(1) + 1  # its blocks
        widest = (self.begin - self.left).amax()
        self.given, count = torch.stack((widest, self.count.amax())).tolist()
        room = int(SLACK * (self.given + count * self.size)) + 2 * self.size
        self.keys: Any = policy.network.new_cache(room)
        self.steps = count_steps(canvas, config, self.size)
        device = canvas.tokens.device
        self.rows = torch.arange(min(size, len(canvas)), device=device)
        self.done = torch.zeros_like(self.rows)  # complete blocks of each
        self.next, self.frontier, self.passes = len(self.rows), self.given, 0
        self.last = torch.zeros(len(canvas), dtype=torch.long, device=device)
        self._read_prompts(self.rows, torch.arange(len(self.rows), device=device))

    def open_block(self) -> Rollout:
        """The next block of every row, as a rollout of as many columns as a block has."""
        if self.frontier + self.size > self.keys.length:
            self._move()
        self.starts = self.begin[self.rows] + self.done * self.size
        whole, take = self.rollout, partial(self._take, starts=self.starts, width=self.size)
        self.canvas = replace(
            whole.canvas,
            tokens=take(whole.canvas.tokens),
            response=take(whole.canvas.response),
            attend=None,
            blocks=None,
            block_size=None,
        )
        begins = (self.done * self.steps).tolist()
        self.block = ResponseBlock(self.canvas.response, 0, self.steps, self.size, begins)
        self.columns = max(0, self.frontier - self.size), self.frontier + self.size
        columns = torch.arange(-self.frontier, self.size, device=self.rows.device)
        place, self.blocks, self.places = self._find(self.rows, self.starts, columns)
        self.attend = (place >= self.left[self.rows, None]) & (place < self.length)
        own = {name: take(getattr(whole, name)) for name in ("trace", "logprobs", "drawn")}
        return replace(whole, canvas=self.canvas, seeds=None, forwards=0, **own)

    def close_block(self, written: Rollout) -> None:
        """Keep what was written; rows that are complete leave, and others take their places."""
        begins = (self.done * self.steps)[:, None]
        steps = torch.where(written.trace >= 0, written.trace + begins, -1)
        whole, index = self.rollout, index_from(self.starts, self.size)
        parts = [(whole.canvas.tokens, written.canvas.tokens), (whole.trace, steps)]
        parts += [(getattr(whole, name), getattr(written, name)) for name in ("logprobs", "drawn")]
        for all_rows, part in parts:
            all_rows[self.rows] = all_rows[self.rows].scatter(1, index, part)
        self.done += 1
        self.frontier += self.size
        self.last[self.rows] = self.done * self.steps - 1
        ended = written.canvas.ends.any(1)
        leaving = (ended | (self.done == self.count[self.rows])).tolist()
        self._replace([n for n, gone in enumerate(leaving) if gone])

    def finish(self) -> Rollout:
        """The rollout of all rows, with what follows the end of a text filled in."""
        whole, canvas = self.rollout, self.rollout.canvas

        def keep(of: Any, *names: str) -> dict[str, Any]:
            return {name: getattr(of, name)[:, : self.length].contiguous() for name in names}

        canvas = replace(canvas, **keep(canvas, "tokens", "response"))
        own = keep(whole, "trace", "logprobs", "drawn")
        rollout = replace(whole, canvas=canvas, forwards=self.passes, **own)
        fill_ended(rollout, self.last[:, None])
        canvas.valid = find_scored(canvas)
        return rollout

    def __call__(self, where: Positions, reduce: Callable[..., Any] | None = None) -> Any:
        """See `OpenBlock`."""
        start, stop = self.columns
        before = stop - self.size - start  # of the block before, which is complete now
        own = self.canvas
        tokens = self._take(self.rollout.canvas.tokens, self.starts - before, before)
        inputs: dict[str, Any] = {
            "input_ids": torch.cat((tokens, own.tokens), 1),
            "attention_mask": self.attend[:, :stop],
            "blocks": self.blocks[:, :stop],
            "position_ids": self.places[:, -(stop - start) :],
            "positions": F.pad(where.where, (before, 0)),
            "columns": own.columns,
            "cache": self.keys.at(start, stop, stop),
        }
        if reduce is not None:
            inputs["reduce"] = reduce
        output = self.policy.model(**inputs).logits
        self.passes += 1
        self.columns = stop - self.size, stop
        return output if reduce is not None else forbid(output, own.forbidden_columns)

    def _find(self, rows: Tensor, starts: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of columns [n], counted from `starts` [r] of some rows: [r, n] columns of the canvas,
        blocks, and positions in the text. What is left of a row is in its first block, so that it
        attends to something."""
        left, starts = self.left[rows, None], starts[:, None]
        own, first = (
            torch.div(each, self.size, rounding_mode="floor") for each in (columns, left - starts)
        )
        place = starts + columns
        return place, own.maximum(first), (place - left).clamp(min=0)

    def _read_prompts(self, rows: Tensor, places: Tensor) -> None:
        """Compute the complete blocks of the prompts of some rows, each distinct one once, for
        their places in the batch."""
        if not self.given:
            return
        columns = torch.arange(-self.given, 0, device=rows.device)
        place, blocks, positions = self._find(rows, self.begin[rows], columns)
        parts = {
            "input_ids": self.rollout.canvas.tokens[rows].gather(1, place.clamp(min=0)),
            # an empty prompt reads the column before the response, which nothing attends to later
            "attention_mask": (place >= self.left[rows, None]) | (columns == -1),
            "blocks": blocks,
            "position_ids": positions,
        }
        cache = self.policy.network.new_cache().at(0, self.given, self.given)
        read_prompts(self.policy, parts, self.rollout.canvas.columns, cache)
        self.passes += 1
        self.keys.put_rows(places, cache, self.frontier)

    def _replace(self, leaving: Sequence[int]) -> None:
        """Give the places of the rows that leave to rows that wait, and drop the others."""
        waiting = range(self.next, min(self.next + len(leaving), len(self.last)))
        self.next += len(waiting)
        if waiting:
            places, new = (
                torch.tensor(each, device=self.rows.device)
                for each in (leaving[: len(waiting)], [*waiting])
            )
            self.rows[places], self.done[places] = new, 0
            self._read_prompts(new, places)
        if gone := {*leaving[len(waiting) :]}:
            staying = [n for n in range(len(self.rows)) if n not in gone]
            kept = torch.tensor(staying, dtype=torch.long, device=self.rows.device)
            self.rows, self.done = self.rows[kept], self.done[kept]
            self.keys.take_rows(kept)

    def _move(self) -> None:
        """Move the cache to the left, where columns are free that no row needs any more."""
        used = (self.begin - self.left)[self.rows] + self.done * self.size
        free = self.frontier - max(int(used.max()), self.given)
        self.keys.drop_columns(free, self.frontier)
        self.frontier -= free

    def _take(self, each: Tensor, starts: Tensor, width: int) -> Tensor:
        return each[self.rows].gather(1, index_from(starts, width))


def index_from(starts: Tensor, width: int) -> Tensor:
    """[r, width] columns of the canvas from `starts` [r] on."""
    return (starts[:, None] + torch.arange(width, device=starts.device)).clamp(min=0)
