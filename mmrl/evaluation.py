"""Scores of a policy on held-out prompts, in all and by tag.

Every sample has its own generator, named by (seed, prompt id, sample index), so scores depend
neither on the batch size nor on what else is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from tqdm import tqdm

from eval.text_to_image import ALL, OVER_PROMPTS, OVER_TAGS, by_tag
from mmrl.data import spread
from mmrl.image_grid import BLACK, Cell, page, scaled
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Sample
from rewards.scoring import Scorer

if TYPE_CHECKING:
    from models import Policy

CELL = 128
GREEN, RED = (10, 125, 51), (179, 38, 30)


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
    show_progress: bool = False,
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
        show_progress: whether to draw a progress bar.

    Raises:
        RewardError: a reward failed more often than the scorer allows.
    """
    rows = [(prompt, n) for prompt in prompts for n in range(num_samples)]
    completions: list[str | Image.Image] = []
    bar = tqdm(total=len(rows), unit="sample", disable=not show_progress)
    with bar, policy.keeping_pace():
        for chunk in _chunks(rows, batch_size):
            some = [prompt for prompt, _ in chunk]
            draws = [generator(seed, "evaluation", prompt.id, n) for prompt, n in chunk]
            rollout = sample(policy, policy.canvas(some), sampler, draws)
            completions += policy.decode(rollout.canvas, some)
            bar.update(len(chunk))
    repeated = [prompt for prompt, _ in rows]
    samples = [
        Sample(prompt.text, completion, {**prompt.metadata, "answer": prompt.answer})
        for prompt, completion in zip(repeated, completions, strict=True)
    ]
    scores = {} if scorer is None else scorer.score(samples).components
    return Evaluation(repeated, completions, scores)


def write_grid(result: Evaluation, path: Path, count: int, columns: int = 8) -> None:
    """Write `count` images, spread over all of them, with prompts and scores; nothing for text.

    Equal prompts and counts give equal places, so grids of two steps can be compared.
    """
    pictured = [n for n, c in enumerate(result.completions) if isinstance(c, Image.Image)]
    if pictured and count >= 1:
        page([_cell(result, n) for n in spread(pictured, count)], columns).save(path)


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


def _chunks(rows: list[tuple[Prompt, int]], size: int) -> Iterator[list[tuple[Prompt, int]]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
