"""Scores of a policy on held-out prompts, in all and by tag.

Every sample has its own generator, named by (seed, prompt id, sample index), so scores depend
neither on the batch size nor on what else is evaluated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from PIL import Image

from eval.image_table import ALL, OVER_PROMPTS, OVER_TAGS, by_tag
from mmrl.data.prompts import spread
from mmrl.randomness import generator
from mmrl.run.image_grid import BLACK, Cell, page, scaled
from mmrl.runtime.activity import activity, advance
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Rollout, Sample
from rewards.scoring.scorer import Scorer

if TYPE_CHECKING:
    from models import Policy

CELL = 128
GREEN, RED = (10, 125, 51), (179, 38, 30)


@dataclass
class Batch:
    """Completions that were sampled together, and what they cost.

    Attributes:
        completions: of its rows, in order.
        lengths: tokens of each before the first end token; all of them where there is none.
        positions: response positions of a row.
        forwards: passes of the network over the batch; a guided pair counts once. A rule or an
            end-of-text option that stops early takes as many as its slowest row, so only one row
            at a time shows what a sample alone would take.
        seconds: spent sampling.
    """

    completions: list[str | Image.Image]
    lengths: list[int]
    positions: int
    forwards: int
    seconds: float


@dataclass
class Evaluation:
    """Completions of prompts (`num_samples` of each, prompt by prompt) and their raw scores."""

    prompts: list[Prompt]
    completions: list[str | Image.Image]
    scores: dict[str, list[float]]

    def metrics(self) -> dict[str, float]:
        """`<reward>`, `<reward>/<tag>` and, beside each, its standard error `…/stderr`."""
        values: dict[str, float] = {}
        for key, scores in self.scores.items():
            for row, cell in by_tag(self.prompts, scores).items():
                if row not in (OVER_TAGS, ALL):
                    name = key if row == OVER_PROMPTS else f"{key}/{row}"
                    values |= {name: cell["mean"], f"{name}/stderr": cell["stderr"]}
        return values


def evaluate(
    policy: Policy,
    prompts: Sequence[Prompt],
    sampler: SamplerConfig,
    scorer: Scorer | None,
    seed: int = 0,
    batch_size: int = 64,
    num_samples: int = 1,
    length: int | None = None,
) -> Evaluation:
    """Sample completions of prompts and score them.

    Args:
        policy: what is evaluated.
        prompts: of one task.
        sampler: settings of the sampler.
        scorer: rewards; None only samples.
        seed: names the draws.
        batch_size: rows sampled at once; changes speed and memory only.
        num_samples: completions per prompt.
        length: response positions; None takes those of the prompts' task.

    Raises:
        RewardError: a reward failed more often than the scorer allows.
        Interrupted: see `mmrl.runtime.interrupt.leaving_together`; between two denoising steps.
    """
    rows, completions = rows_of(prompts, num_samples), []
    pending = None if scorer is None else scorer.begin(len(rows))
    with activity("samples", len(rows)), policy.keeping_pace():
        for first in range(0, len(rows), batch_size):
            some = rows[first : first + batch_size]
            batch = sample_batch(policy, some, sampler, seed, length)
            completions += batch.completions
            if pending is not None:
                pending.add(_samples(some, batch.completions))
            advance(len(some))
    with activity("waiting for rewards"):
        scores = {} if pending is None else pending.scores().components
    return Evaluation([prompt for prompt, _ in rows], completions, scores)


def rows_of(prompts: Sequence[Prompt], num_samples: int) -> list[tuple[Prompt, int]]:
    """(prompt, sample) of every completion, prompt by prompt."""
    return [(prompt, n) for prompt in prompts for n in range(num_samples)]


def sample_batch(
    policy: Policy,
    rows: Sequence[tuple[Prompt, int]],
    sampler: SamplerConfig,
    seed: int,
    length: int | None = None,
) -> Batch:
    """Completions of some (prompt, sample) rows; see `evaluate`."""
    prompts = [prompt for prompt, _ in rows]
    draws = [generator(seed, "evaluation", prompt.id, n) for prompt, n in rows]
    started = time.perf_counter()
    rollout = sample(policy, policy.canvas(prompts, length), sampler, draws)
    lengths = effective_lengths(rollout)  # on the host, so the device has finished
    seconds = time.perf_counter() - started
    positions = int(rollout.canvas.response[0].sum())
    completions = list(policy.decode(rollout.canvas, prompts))
    return Batch(completions, lengths, positions, rollout.forwards, seconds)


def effective_lengths(rollout: Rollout) -> list[int]:
    """Tokens of each row's response before its first end token, which is not counted."""
    canvas = rollout.canvas
    if canvas.valid is None:
        return canvas.response.sum(1).tolist()
    ends = torch.tensor(canvas.stop_ids, dtype=torch.long, device=canvas.tokens.device)
    return (canvas.valid & ~torch.isin(canvas.tokens, ends)).sum(1).tolist()


def scored(
    rows: Sequence[tuple[Prompt, int]], batches: Sequence[Batch], scorer: Scorer | None
) -> Evaluation:
    """The completions of all rows with their raw scores.

    Raises:
        RewardError: a reward failed more often than the scorer allows.
    """
    completions = [completion for batch in batches for completion in batch.completions]
    samples = _samples(rows, completions)
    with activity("scoring"):
        scores = {} if scorer is None else scorer.score(samples).components
    return Evaluation([prompt for prompt, _ in rows], completions, scores)


def _samples(
    rows: Sequence[tuple[Prompt, int]], completions: Sequence[str | Image.Image]
) -> list[Sample]:
    """What rewards see of the completions of rows."""
    return [
        Sample.of(prompt, completion)
        for (prompt, _), completion in zip(rows, completions, strict=True)
    ]


def write_grid(result: Evaluation, path: Path, count: int, columns: int = 8) -> bool:
    """Write the grid of an evaluation; nothing for text.

    Returns:
        Whether there was something to write.
    """
    drawn = draw_grid(result, count, columns)
    if drawn is not None:
        drawn.save(path)
    return drawn is not None


def draw_grid(result: Evaluation, count: int, columns: int = 8) -> Image.Image | None:
    """`count` images, spread over all of them, with prompts and scores; None for text.

    Equal prompts and counts give equal places, so grids of two steps can be compared.
    """
    pictured = [n for n, c in enumerate(result.completions) if isinstance(c, Image.Image)]
    if not pictured or count < 1:
        return None
    return page([_cell(result, n) for n in spread(pictured, count)], columns)


def _cell(result: Evaluation, n: int) -> Cell:
    """One image, its prompt, and its first score."""
    image = result.completions[n]
    assert isinstance(image, Image.Image)
    lines = [(result.prompts[n].text, BLACK)]
    for key, scores in list(result.scores.items())[:1]:
        if not math.isnan(scores[n]):
            color = GREEN if scores[n] == 1 else RED if scores[n] == 0 else BLACK
            lines.append((f"{key} {scores[n]:.3g}", color))
    return Cell(scaled(image, CELL), lines)
