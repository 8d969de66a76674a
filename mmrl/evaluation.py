"""Scores of a policy on held-out prompts, in all and by tag.

Every sample has its own generator, named by (seed, prompt id, sample index), so scores depend
neither on the batch size nor on what else is evaluated.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Sample
from rewards.scoring import Scorer

if TYPE_CHECKING:
    from models import Policy


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
            groups = defaultdict(list)
            for prompt, score in zip(self.prompts, scores, strict=True):
                if not math.isnan(score):
                    groups[key].append(score)
                    groups[f"{key}/{prompt.metadata.get('tag', 'all')}"].append(score)
            for name, some in groups.items():
                values[name] = statistics.fmean(some)
                deviation = statistics.stdev(some) if len(some) > 1 else 0.0
                values[f"{name}/stderr"] = deviation / math.sqrt(len(some))
        return values


def evaluate(
    policy: Policy,
    prompts: Sequence[Prompt],
    sampler: SamplerConfig,
    scorer: Scorer | None,
    seed: int = 0,
    batch_size: int = 64,
    num_samples: int = 1,
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
    """
    rows = [(prompt, n) for prompt in prompts for n in range(num_samples)]
    completions: list[str | Image.Image] = []
    for chunk in _chunks(rows, batch_size):
        some = [prompt for prompt, _ in chunk]
        draws = [generator(seed, "evaluation", prompt.id, n) for prompt, n in chunk]
        rollout = sample(policy, policy.canvas(some), sampler, draws)
        completions += policy.decode(rollout.canvas, some)
    repeated = [prompt for prompt, _ in rows]
    samples = [
        Sample(prompt.text, completion, {**prompt.metadata, "answer": prompt.answer})
        for prompt, completion in zip(repeated, completions, strict=True)
    ]
    scores = {} if scorer is None else scorer.score(samples).components
    return Evaluation(repeated, completions, scores)


def write_grid(result: Evaluation, path: Path, count: int, columns: int = 8) -> None:
    """Write the first `count` images as one PNG; nothing for text."""
    images = [c for c in result.completions[:count] if isinstance(c, Image.Image)]
    if not images:
        return
    side = max(96, images[0].width)
    rows = -(-len(images) // columns)
    grid = Image.new("RGB", (columns * (side + 4) + 4, rows * (side + 4) + 4), "white")
    for n, image in enumerate(images):
        small = Image.Resampling.NEAREST if image.width < side else Image.Resampling.LANCZOS
        place = (4 + n % columns * (side + 4), 4 + n // columns * (side + 4))
        grid.paste(image.resize((side, side), small), place)
    grid.save(path)


def _chunks(rows: list[tuple[Prompt, int]], size: int) -> Iterator[list[tuple[Prompt, int]]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
