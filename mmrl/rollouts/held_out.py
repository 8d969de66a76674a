"""Completions of held-out prompts and their scores.

Every sample has its own generator, named by (seed, prompt id, sample index), so scores depend
neither on the batch size nor on what else is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accelerate import Accelerator
from accelerate.utils import gather_object

from mmrl.data.prompts import spread
from mmrl.randomness import generator
from mmrl.rewards.registry.interface import Item
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rollouts.diversity import Diversity, list_tokens
from mmrl.rollouts.means import OVER_PROMPTS, OVER_TAGS, UNTAGGED, Table, mean_by_tag
from mmrl.runtime.activity import activity, advance
from mmrl.samplers import SamplerConfig, sample, sampling
from mmrl.types import Completion, Prompt, Rollout, Sample

if TYPE_CHECKING:
    from mmrl.models import Policy


@dataclass
class Batch:
    """Completions that were sampled together, one per row, and their cost: the tokens of each
    before the first end token, all of them where there is none (`lengths`), response positions of a
    row, forward passes over the batch and seconds; `tokens` as in `Completions`. A guided pair
    counts as one pass. A rule or an end-of-text option that stops early takes as many as its
    slowest row, so only one row at a time shows the cost of a single sample."""

    completions: list[Completion]
    lengths: list[int]
    positions: int
    forwards: int
    seconds: float
    tokens: list[list[int]]


@dataclass
class Evaluation:
    """Completions of prompts (as many of each, prompt by prompt) and their raw scores.

    `items` has the items of each sample of the rewards that have them, [] where one failed; see
    `mmrl.rewards.registry.interface.Itemised`. `diversity` is that of the completions of a prompt.
    """

    prompts: list[Prompt]
    completions: list[Completion]
    scores: dict[str, list[float]]
    items: dict[str, list[list[Item]]] = field(default_factory=dict)
    diversity: Diversity = field(default_factory=Diversity)

    def metrics(self) -> dict[str, float]:
        """`<reward>`, `<reward>/<tag>` and, beside each, its standard error `…/stderr`."""
        values: dict[str, float] = {}
        for key, scores in self.scores.items():
            for row, cell in mean_by_tag(self.prompts, scores).items():
                if row not in (OVER_TAGS, UNTAGGED):
                    name = key if row == OVER_PROMPTS else f"{key}/{row}"
                    values |= {name: cell["mean"], f"{name}/stderr": cell["stderr"]}
        return values

    def diversity_tables(self) -> dict[str, Table]:
        """`diversity/<value>` by tag, of what is known of the completions of any prompt."""
        tables = {}
        for key, values in self.diversity.groups.items():
            if values:
                prompts = self.prompts[:: len(self.prompts) // len(values)]
                tables[f"diversity/{key}"] = mean_by_tag(prompts, values)
        return {key: table for key, table in tables.items() if table}


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
    """Sample completions of prompts of one task, `num_samples` of each, and score them; without a
    scorer only sample. The seed names the draws, `batch_size` is how many rows are sampled at once,
    and `length` the response positions, None for those of the task.

    Raises RewardError: a reward failed more often than the scorer allows. Raises Interrupted: see
    `mmrl.runtime.interrupt.leave_together`; between two denoising steps."""
    rows, completions = list_rows(prompts, num_samples), []
    pending = None if scorer is None else scorer.begin(len(rows))
    with activity("samples", len(rows)), sampling(policy, sampler, True):
        for first in range(0, len(rows), batch_size):
            some = rows[first : first + batch_size]
            batch = sample_batch(policy, some, sampler, seed, length)
            completions += batch.completions
            if pending is not None:
                pending.add(list_samples(some, batch.completions))
            advance(len(some))
    with activity("waiting for rewards"):
        scores = {} if pending is None else pending.scores().components
    return Evaluation([prompt for prompt, _ in rows], completions, scores)


def list_rows(prompts: Sequence[Prompt], num_samples: int) -> list[tuple[Prompt, int]]:
    """(prompt, sample) of every completion, prompt by prompt."""
    return [(prompt, n) for prompt in prompts for n in range(num_samples)]


def sample_batch(
    policy: Policy,
    rows: Sequence[tuple[Prompt, int]],
    sampler: SamplerConfig,
    seed: int,
    length: int | None = None,
) -> Batch:
    """Sample completions of some (prompt, sample) rows; see `evaluate`."""
    prompts = [prompt for prompt, _ in rows]
    draws = [generator(seed, "evaluation", prompt.id, n) for prompt, n in rows]
    started = time.perf_counter()
    rollout = sample(policy, policy.canvas(prompts, length), sampler, draws)
    lengths = effective_lengths(rollout)  # on the host, so the device has finished
    seconds = time.perf_counter() - started
    positions = int(rollout.canvas.response[0].sum())
    completions = list(policy.decode(rollout.canvas, prompts))
    tokens = list_tokens(rollout.canvas)
    return Batch(completions, lengths, positions, rollout.forwards, seconds, tokens)


def effective_lengths(rollout: Rollout) -> list[int]:
    """Number of tokens of each row's response before its first end token."""
    canvas = rollout.canvas
    if canvas.valid is None:
        return canvas.response.sum(1).tolist()
    return (canvas.valid & ~canvas.ends).sum(1).tolist()


def list_samples(
    rows: Sequence[tuple[Prompt, int]], completions: Sequence[Completion]
) -> list[Sample]:
    """What rewards score of the completions of rows."""
    pairs = zip(rows, completions, strict=True)
    return [Sample.of(prompt, completion) for (prompt, _), completion in pairs]


def local_share(count: int, accelerator: Accelerator) -> slice:
    """The places of `count` prompts that this process evaluates."""
    rank, world_size = accelerator.process_index, accelerator.num_processes
    return slice(count * rank // world_size, count * (rank + 1) // world_size)


def gather_evaluation(
    part: Evaluation, prompts: Sequence[Prompt], mine: slice, num_images: int
) -> Evaluation:
    """The evaluation of all prompts from the parts of all processes, one completion per prompt
    each; all call this. `mine` are the places of this process's prompts. `num_images` completions
    are kept, spread over all; the others become empty texts."""
    wanted = set(spread(range(len(prompts)), num_images)) if num_images else set()
    kept = [
        completion if place in wanted else ""
        for place, completion in enumerate(part.completions, start=mine.start)
    ]
    scores = {key: gather_object(values) for key, values in part.scores.items()}
    return Evaluation(list(prompts), gather_object(kept), scores)
