"""Appending tokens from left to right, in the process that trains.

    read the distinct prompts -> share their keys and values -> [draw, write, read one token] ...

Logits exist for one column at a time. Rows that have ended leave the batch when enough of them
have. What a row draws follows from its own seed, so it does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from mmrl.generation.causal.canvas import CausalCanvas
from mmrl.generation.causal.sampler_config import AutoregressiveConfig
from mmrl.generation.tokens.draw import filter_logits, forbid
from mmrl.generation.tokens.noise import categorical, row_seeds
from mmrl.generation.tokens.scoring.logits import find_distinct
from mmrl.randomness import generator as generator_of
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.precision import share_casts
from mmrl.types import Rollout

if TYPE_CHECKING:
    from mmrl.models import Policy

CHECK_EVERY = 16
"""Steps after which the host asks which rows have ended."""
KEPT = 0.75
"""Share of the rows in the batch that go on, up to which the others leave it."""


def append_tokens(
    policy: Policy,
    canvas: CausalCanvas,
    config: AutoregressiveConfig,
    generator: Generator | Sequence[Generator],
    *_: Any,
) -> Rollout:
    """Write the responses of a canvas; see `mmrl.samplers.sample`."""
    return append_seeded(policy, canvas, config, row_seeds(generator, len(canvas)))


@torch.no_grad()
def append_seeded(
    policy: Policy, canvas: CausalCanvas, config: AutoregressiveConfig, seeds: list[int]
) -> Rollout:
    """The same with the seed of each row."""
    first = canvas.first_column
    rollout = canvas.begin(config, seeds)
    canvas = rollout.canvas
    length = canvas.tokens.shape[1] - first
    draws = [torch.rand(length, generator=generator_of(seed, "token")) for seed in seeds]
    uniforms = torch.stack(draws).to(canvas.tokens.device)
    held = find_held(canvas, first) if config.repetition_penalty != 1 else None
    ended = torch.zeros(len(canvas), dtype=torch.bool, device=canvas.tokens.device)
    with share_casts(policy, uniforms.device), activity("token", length):
        reader, rollout.forwards = _Reader(policy, canvas, first), 1
        for step in range(length):
            rows = reader.rows
            seen = None if held is None else held[rows]
            drawn = draw(reader.logits, config, uniforms[rows, step], seen)
            ended = _write(rollout, rows, first + step, step, drawn, ended)
            if held is not None:
                held[rows, drawn[0]] = True
            advance()
            if step + 1 == length:
                break
            if (step + 1) % CHECK_EVERY == 0 and not reader.drop(~ended):
                break
            reader.read(first + step)
            rollout.forwards += 1
    return finish_rollout(rollout)


def finish_rollout(rollout: Rollout) -> Rollout:
    """Say which response positions were written, and fill the others, in place."""
    canvas = rollout.canvas
    canvas.valid = canvas.response & (rollout.trace >= 0)
    fill = canvas.stop_ids[0] if canvas.stop_ids else 0
    canvas.tokens.masked_fill_(canvas.response & ~canvas.valid, fill)
    return rollout


class _Reader:
    """The network in the middle of the `rows` of a canvas that go on, [R] int64; `logits` [R, C]
    are of the next token of each."""

    def __init__(self, policy: Policy, canvas: CausalCanvas, first: int) -> None:
        self.policy, self.canvas = policy, canvas
        self.cache = policy.network.new_cache(canvas.tokens.shape[1])
        self.rows = torch.arange(len(canvas), device=canvas.tokens.device)
        before = canvas.take_columns(slice(first))
        keys = before.inputs()
        if before.features is not None:
            keys["shown"] = before.features.at
        kept, original = find_distinct(keys)
        shown = before[kept]
        inputs = shown.inputs() | ({} if shown.features is None else shown.features.inputs())
        self.logits = self._call(inputs)[original]
        self.cache.take_rows(original)

    def read(self, column: int) -> None:
        """Read the tokens of a column."""
        canvas = self.canvas
        inputs = {"input_ids": canvas.tokens[self.rows, column : column + 1]}
        if canvas.attend is not None:
            inputs["attention_mask"] = canvas.attend[self.rows, : column + 1]
        self.logits = self._call(inputs)

    def _call(self, inputs: dict[str, Any]) -> Tensor:
        found = self.policy.model(**inputs, columns=self.canvas.columns, cache=self.cache).logits
        return forbid(found, self.canvas.forbidden_columns)

    def drop(self, going_on: Tensor) -> int:
        """Let rows leave the batch where many have ended; `going_on` [B] bool. Returns the number
        that go on. The host waits for the device once."""
        places = going_on[self.rows].nonzero().squeeze(1)
        if 0 < len(places) <= KEPT * len(self.rows):
            self.rows = self.rows[places]
            self.cache.take_rows(places)
        return len(places)


def draw(
    logits: Tensor, config: AutoregressiveConfig, uniforms: Tensor, held: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw the next tokens from logits [R, C] with uniforms [R], with the warpers of transformers'
    `generate` in its order: repetition penalty, temperature, top-k, top-p, min-p. Returns columns
    [R] and the log-probs [R] with which they were drawn.

    `held` [R, C] bool: the tokens that a row holds, for the penalty. Unlike transformers', padding
    is none of them.
    """
    wide = logits.double() if logits.dtype.itemsize > 4 else logits.float()
    if held is not None:
        factor = config.repetition_penalty
        wide = torch.where(held, torch.where(wide < 0, wide * factor, wide / factor), wide)
    if config.temperature == 0:
        return wide.argmax(-1), torch.zeros_like(wide[:, 0])
    logp = filter_min_p(filter_logits(wide, config), config.min_p).log_softmax(-1)
    columns = categorical(logp.exp(), uniforms)
    return columns, logp.gather(-1, columns[:, None])[:, 0]


def find_held(canvas: CausalCanvas, first: int) -> Tensor:
    """[B, C] bool: the columns of the tokens that prompts hold."""
    low, high = canvas.columns
    tokens = canvas.tokens[:, :first]
    inside = (tokens >= low) & (tokens < high)
    if canvas.attend is not None:
        inside &= canvas.attend[:, :first]
    held = torch.zeros(len(canvas), high - low, dtype=torch.bool, device=tokens.device)
    return held.scatter_reduce(1, (tokens - low).clamp(0, high - low - 1), inside, "amax")


def filter_min_p(logits: Tensor, share: float) -> Tensor:
    """Logits [R, C] with -inf for tokens below this share of the highest probability."""
    if share == 0:
        return logits
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < share * probs.amax(-1, keepdim=True), -torch.inf)


def _write(
    rollout: Rollout,
    rows: Tensor,
    column: int,
    step: int,
    drawn: tuple[Tensor, Tensor],
    ended: Tensor,
) -> Tensor:
    """Write a column of the rows that have not ended; [B] bool, the rows that have ended now."""
    canvas, open_ = rollout.canvas, ~ended[rows]
    tokens = drawn[0] + canvas.columns[0]
    for part, values in (
        (canvas.tokens, tokens),
        (rollout.trace, torch.full_like(tokens, step)),
        (rollout.logprobs, drawn[1].float()),
    ):
        part[rows, column] = values.where(open_, part[rows, column])
    ends = torch.zeros_like(open_)
    for token in canvas.stop_ids:
        ends |= tokens == token
    return ended.index_put((rows,), ended[rows] | ends)
