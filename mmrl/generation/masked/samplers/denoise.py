"""The one denoising loop behind every sampler.

    logits where this step may write -> guidance -> temperature, top-k, top-p -> rule -> write

The network runs once per step on conditional and unconditional rows together, computes logits only
at the positions the rule asks for and only for the response vocabulary, and computes rows that are
still identical (a group before its first write) once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Generator, Tensor

from mmrl.config import ConfigError, check
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.generation.masked.samplers.caches import ExactCache, RefreshCache
from mmrl.generation.masked.samplers.loop_config import LoopConfig, check_blocks
from mmrl.generation.masked.samplers.rule import (
    Choice,
    Prediction,
    ResponseBlock,
    Rule,
    State,
    choose,
    forbid,
)
from mmrl.generation.masked.samplers.streamed import Stream
from mmrl.generation.tokens.noise import Draws, row_seeds
from mmrl.generation.tokens.positions import Positions
from mmrl.generation.tokens.scoring.logits import guided_output
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.precision import share_casts
from mmrl.types import Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy


@torch.no_grad()
def denoise(
    policy: Policy,
    canvas: MaskedCanvas,
    config: LoopConfig,
    rule: Rule,
    generator: Generator | Sequence[Generator],
) -> Rollout:
    """Write every masked response position of a canvas; see `mmrl.samplers.sample`."""
    rollout, seeds = begin_rollout(canvas, config, generator)
    canvas, exact = rollout.canvas, None
    if canvas.blocks is not None and config.cache != "none":
        exact = ExactCache(policy, canvas, config.guidance)
        rollout.forwards += int(exact.start > 0)
    stream = open_stream(policy, canvas, config, rule)
    with share_casts(policy, canvas.tokens.device), activity("denoising step", config.steps):
        for block in split_blocks(canvas, config):
            network = BlockNetwork(policy, canvas, block, config, exact)
            write_block(network, rollout, rule, seeds, stream)
            if config.eos == "stop":
                fill_ended(rollout, block.first + block.steps - 1)
    if config.eos == "leave":
        fill_ended(rollout, config.steps - 1)
    canvas.valid = find_scored(canvas)
    return rollout


def begin_rollout(
    canvas: MaskedCanvas, config: LoopConfig, generator: Generator | Sequence[Generator]
) -> tuple[Rollout, list[int]]:
    """An unwritten rollout of a copy of the canvas, and the seed of each row. Raises ConfigError:
    the end of a text where there is none, or a cache that the network does not have."""
    if config.eos != "free" and not canvas.stop_ids:
        raise ConfigError(
            f"sampler.eos is {config.eos!r} and these completions have no end token; set it to"
            " free."
        )
    if canvas.blocks is not None:
        allowed = "prefix or none, for a network whose attention is causal between blocks"
        check(config.cache != "refresh", "sampler.cache", config.cache, allowed)
    seeds = row_seeds(generator, len(canvas))
    rollout = canvas.begin(config, seeds)
    return replace(rollout, drawn=rollout.trace >= 0), seeds


def open_stream(
    policy: Policy, canvas: MaskedCanvas, config: LoopConfig, rule: Rule
) -> Stream | None:
    """How draws are made from hidden states, where the network hands over its head."""
    if not policy.network.can_reduce or config.cache == "refresh":
        return None
    forbidden = {*canvas.forbidden_columns, *suppressed_columns(canvas, config)}
    return Stream(canvas, config, rule, forbidden)


def split_blocks(canvas: MaskedCanvas, config: LoopConfig) -> list[ResponseBlock]:
    """The blocks of the responses of a canvas, from the left; where the network's attention is
    causal between blocks, its own. Counted from the first token, a response of n positions may lie
    in one block more than n / block_size: all blocks have the same number of steps, so it then
    takes that many steps more.

    Raises ConfigError: see `check_blocks`; also a block size that is not that of the network.
    Raises ValueError: rows with different numbers of response positions."""
    response, size = canvas.response, config.shared_size
    if canvas.blocks is not None:
        allowed = f"null, or {canvas.block_size}, the block size of the network's attention"
        check(size in (None, canvas.block_size), "sampler.block_size", size, allowed)
        size = canvas.block_size
    place = canvas.split(size)
    if place is None or size is None:
        return [ResponseBlock(response, 0, config.steps)]
    planned = None if canvas.blocks is None else size
    steps, number = count_steps(canvas, config, size), int(place.amax()) + 1 if len(place) else 0
    return [ResponseBlock(place == k, k * steps, steps, planned) for k in range(number)]


def count_steps(canvas: MaskedCanvas, config: LoopConfig, size: int) -> int:
    """Denoising steps of a block of `size` positions. Raises as `split_blocks`."""
    counts = set(canvas.response.sum(1).tolist())
    if len(counts) > 1:
        raise ValueError(
            f"rows have {sorted(counts)} response positions; blocks need the same number in each"
        )
    length = counts.pop() if counts else 0
    if canvas.blocks is not None:  # the last of left-aligned blocks may be shorter
        length = -(-length // size) * size
    return config.steps // check_blocks(replace(config, block_size=size), length)


def write_block(
    network: OpenBlock, rollout: Rollout, rule: Rule, seeds: list[int], stream: Stream | None = None
) -> None:
    """Write the masked positions of one block of an unfinished rollout, in place."""
    canvas, config, block = rollout.canvas, network.config, network.block
    opened = canvas.masked & block.positions
    steps = range(block.first, block.first + block.steps)
    draws = Draws(seeds, Positions.find(block.positions), steps, block.begins)
    every = network.policy.shares_forwards and rule.fixed and config.takes_every_step
    for step in range(block.steps):
        advance()
        masked = canvas.masked & block.positions
        if config.eos == "leave":
            masked &= ~after_end(canvas)
        if not (every or masked.any()):
            break
        state = State(block, step, opened, masked, draws)
        where = Positions.find(rule.candidates(state, config))
        if not len(where):
            if every:  # others may write in this step
                network(where)
            continue
        choice = draw(network, state, where, rule, stream)
        record(rollout, where, choice, rule.write(state, where, choice, config), steps[step])
    rollout.forwards += network.passes


def draw(
    network: OpenBlock, state: State, where: Positions, rule: Rule, stream: Stream | None
) -> Choice:
    """Draw tokens at the positions `where`, from all logits at once or as a stream."""
    canvas, config = network.canvas, network.config
    # None takes the most likely
    uniforms = where.take(state.uniform("token")) if config.temperature else None
    if stream is not None and stream.needed(len(where)):
        return network(where, partial(stream, uniforms=uniforms))
    logits = forbid(network(where), suppressed_columns(canvas, config))
    return choose(rule, Prediction(logits, config, canvas.columns_of(canvas.stop_ids)), uniforms)


def suppressed_columns(canvas: MaskedCanvas, config: LoopConfig) -> list[int]:
    """The column that `eos: suppress` forbids, if it is set."""
    return canvas.columns_of(canvas.stop_ids[:1] if config.eos == "suppress" else ())


def record(rollout: Rollout, where: Positions, choice: Choice, written: Tensor, step: int) -> None:
    """Write what was drawn at the `written` of the positions `where`, with its step."""
    assert rollout.drawn is not None, "the denoising loop keeps what is drawn"
    tokens = choice.columns + rollout.canvas.columns[0]
    new = (tokens, choice.logprobs, torch.full_like(tokens, step), choice.drawn)
    parts = (rollout.canvas.tokens, rollout.logprobs, rollout.trace, rollout.drawn)
    for part, values in zip(parts, new, strict=True):
        where.write(part, values.where(written, where.take(part)))


def after_end(canvas: MaskedCanvas) -> Tensor:
    """[B, L] bool: response positions after the first written end of the text."""
    ended = canvas.ends.long()
    return canvas.response & (ended.cumsum(1) - ended > 0)


def find_scored(canvas: MaskedCanvas) -> Tensor | None:
    """[B, L] bool: response positions up to and including the end; None where there is no end."""
    return canvas.response & ~after_end(canvas) if canvas.stop_ids else None


def fill_ended(rollout: Rollout, step: int | Tensor) -> None:
    """Write the open positions after the end of each row, in place, as written at `step`, of all
    rows or of each, [B, 1].

    Nothing was sampled there: their log-prob stays 0.
    """
    canvas = rollout.canvas
    rest = after_end(canvas) & canvas.masked
    canvas.tokens.masked_fill_(rest, canvas.stop_ids[0])
    rollout.trace = rollout.trace.where(~rest, step)


class OpenBlock(Protocol):
    """A network for the block of a canvas that is being written; `passes` counts its forwards."""

    policy: Policy
    canvas: MaskedCanvas
    block: ResponseBlock
    config: LoopConfig
    passes: int

    def __call__(self, where: Positions, reduce: Callable[..., Any] | None = None) -> Any:
        """Logits [N, C] at the positions `where`, guidance applied, or what `reduce` makes of
        hidden states and head."""
        ...


class BlockNetwork:
    """The network for one block: open rows only, fewer columns with a cache, which is `exact` where
    the network's attention is causal between blocks.

    Attributes:
        columns: half-open range of canvas columns that the next forward pass computes.
        passes: forward passes so far.
    """

    def __init__(
        self,
        policy: Policy,
        canvas: MaskedCanvas,
        block: ResponseBlock,
        config: LoopConfig,
        exact: ExactCache | None = None,
    ) -> None:
        self.policy, self.canvas, self.block, self.config = policy, canvas, block, config
        self.exact, self.passes = exact, 0
        rows = (canvas.masked & block.positions).any(1).nonzero().flatten()
        self.rows = rows if 0 < len(rows) < len(canvas) else None
        self.columns, self.cache, self.refresh = (0, canvas.tokens.shape[1]), None, None
        if exact is not None:
            self.rows, self.cache = exact.keep(canvas), exact.keys
            self.later = exact.columns_of(canvas, block.positions)
            self.columns = exact.start, self.later[1]
        elif config.cache == "refresh":
            self.refresh = RefreshCache(policy, canvas, config)
        elif config.cache != "none":
            if not torch.equal(canvas.response, canvas.response[:1].expand_as(canvas.response)):
                raise ValueError(
                    "a cache needs the same response columns in every row; set cache to none"
                )
            self.cache = policy.network.new_cache()
            self.later = cached_columns(block.positions, config)

    def __call__(self, where: Positions, reduce: Callable[..., Any] | None = None) -> Any:
        """See `OpenBlock`."""
        canvas, asked = self.canvas, where.where
        if self.rows is not None:
            canvas, asked = canvas[self.rows], asked[self.rows]
        if self.refresh is not None:
            self.passes += 1
            return self.refresh(canvas, asked)
        if self.cache is not None:
            whole = self.config.cache == "dual" and self.exact is None
            seen = canvas.tokens.shape[1] if whole else self.columns[1]
            self.cache.at(*self.columns, seen)
        shared = self.block.first == 0 and self.passes == 0 and self.exact is None
        inputs = self.config.guidance, shared, self.cache, reduce
        logits = guided_output(self.policy, canvas, asked, *inputs)
        self.passes += 1
        if self.cache is not None:
            self.columns = self.later
        if self.exact is not None:
            self.exact.start = self.later[0]
        return logits


def cached_columns(positions: Tensor, config: LoopConfig) -> tuple[int, int]:
    """Half-open range of columns that later steps of the block at `positions` compute with a cache,
    see `LoopConfig.window`."""
    used, length = positions.any(0).nonzero().flatten().tolist(), positions.shape[1]
    start, stop = (used[0], used[-1] + 1) if used else (0, 0)
    if config.window is not None:
        return start, min(stop + config.window, length)
    return start, length if config.cache == "prefix" else stop
