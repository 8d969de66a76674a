"""Rollouts: prompts of one step -> groups of finished, scored canvases on each process.

Rewards get whole groups, as soon as they are sampled; `score_groups` waits for their scores. Each
process gets consecutive whole groups. Every rollout has its own generator, named by (run seed,
task, step, prompt, sample), so canvases do not depend on how many processes or batches share the
work.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from mmrl.generation.generation import Place
from mmrl.generation.kinds import SAMPLERS
from mmrl.randomness import generator, stable_seed
from mmrl.rewards.scoring.failures import RewardError
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.scorer import Pending
from mmrl.rollouts.chunks import cut
from mmrl.rollouts.credit import assign_credit, place_at_end, place_rewards
from mmrl.rollouts.diversity import Completions, list_tokens, measure
from mmrl.rollouts.lookahead import credit_tokens, score_lookaheads
from mmrl.rollouts.overlong import (
    fail_overlong,
    find_overlong,
    leave_out_truncated,
    punish_overlong,
)
from mmrl.runtime.activity import activity, advance
from mmrl.runtime.interrupt import leave_together
from mmrl.samplers import sample, sampling
from mmrl.types import Completion, Prompt, Rollout, Sample

if TYPE_CHECKING:
    from mmrl.models import Policy
    from mmrl.rollouts.tasks import Task

logger = logging.getLogger(__name__)


@dataclass
class RolloutBatch:
    """This process's rollouts of one step.

    Attributes:
        prompts: B prompts, group by group.
        rollout: their finished canvases.
        completions: decoded.
        rewards: [B] float32 weighted sums, NaN where no reward applies.
        advantages: [B] float32, of the weighted sums.
        names: B (prompt, sample) places in the step, which name the draws of passes.
        scores: raw scores by reward key, B each.
        metrics: of all processes together.
        left_out: [B] bool, rollouts that the update leaves out; None for none.
        token_rewards: [B, L] float32, for a value model: what each chunk of a completion earned at
            its last position, and the rest at the last of the row, as advantages on one scale;
            None where no chunks are judged.
        token_advantages: [B, L] float32, of the slice in which each position was written, 0
            elsewhere; None without `algorithm.completion_value`.
    """

    prompts: list[Prompt]
    rollout: Rollout
    completions: list[Completion]
    rewards: Tensor
    advantages: Tensor
    names: list[tuple[int, int]]
    scores: dict[str, list[float]]
    metrics: dict[str, float] = field(default_factory=dict)
    left_out: Tensor | None = None
    token_rewards: Tensor | None = None
    token_advantages: Tensor | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def select(self, rows: Sequence[int]) -> RolloutBatch:
        """The batch of some rows, with the metrics of all."""
        places = torch.tensor(rows, dtype=torch.long)

        def take(each: Any) -> Any:
            return None if each is None else each[places.to(each.device)]

        tensors = ("rewards", "advantages", "left_out", "token_rewards", "token_advantages")
        return replace(
            self,
            prompts=[self.prompts[row] for row in rows],
            rollout=self.rollout[places.to(self.rollout.trace.device)],
            completions=[self.completions[row] for row in rows],
            names=[self.names[row] for row in rows],
            scores={key: [each[row] for row in rows] for key, each in self.scores.items()},
            **{name: take(getattr(self, name)) for name in tensors},
        )

    def position_rewards(self) -> Tensor:
        """[B, L] rewards for the row up to a position, as advantages among the group."""
        if self.token_rewards is not None:
            return self.token_rewards
        return place_at_end(self.advantages, self.rollout.trace.shape[1])


@dataclass
class Groups:
    """This process's groups of one step, sampled and being scored.

    `place` is step, seed of the run, this process and the number of processes; `names` are B
    (prompt, sample) places in the step, `samples` the inputs of the rewards, `pending` their
    scores, once they are known, and `lookaheads` those of what they were about to become, None
    without."""

    task: Task
    place: tuple[int, int, int, int]
    prompts: list[Prompt]
    names: list[tuple[int, int]]
    rollout: Rollout
    samples: list[Sample]
    pending: Pending
    lookaheads: Pending | None
    metrics: dict[str, float]


def sample_groups(
    task: Task,
    policy: Policy,
    step: int,
    seed: int,
    rank: int,
    world_size: int,
    names: Sequence[tuple[int, int]] | None = None,
    prompts: list[Prompt] | None = None,
) -> Groups:
    """Sample the groups of one step of a run, without gradient; the rewards get each when it is
    finished. `names` are (prompt, sample) places of whole groups, as many on every process; None
    for those of the step. `prompts` are theirs; None for those of the task's file.

    Raises:
        RewardError: a reward failed more often than the configuration allows.
        Interrupted: a stop is requested on any process; between two denoising steps.
    """
    names, size = [*(names or task.places(rank, world_size))], task.config.num_generations
    batch, number = names[0][0] // task.config.num_prompts, task.config.num_prompts
    chosen = task.step_prompts(step, seed, batch) if prompts is None else prompts
    prompts = prompts or [chosen[place % number] for place, _ in names]
    pending, parts, samples = task.scorer.begin(len(prompts)), [], []
    started = time.perf_counter()
    forwards_differ = not _has_fixed_forwards(task, policy, chosen)
    with (
        activity("rollouts", len(prompts)),
        leave_together(),
        task.acting(),
        sampling(policy, task.config.sampler, forwards_differ),
    ):
        seeds = (seed, "rollout", task.name, step)
        for part, completions in _sample_batches(task, policy, prompts, names, seeds):
            parts.append(part)
            some, handed = prompts[len(samples) :], len(samples) // size * size
            samples += _build_samples(task, policy, some, part, completions)
            pending.add(samples[handed : len(samples) // size * size])
            advance(len(completions))
        rollout = Rollout.join(parts)
        lookaheads = score_lookaheads(task, policy, prompts, rollout)
    seconds = time.perf_counter() - started
    speed = world_size * float(rollout.canvas.response.sum()) / seconds
    metrics = {"time/rollout_s": seconds, "perf/tokens_per_s": speed}
    place = step, seed, rank, world_size
    return Groups(task, place, prompts, names, rollout, samples, pending, lookaheads, metrics)


def _has_fixed_forwards(task: Task, policy: Policy, prompts: Sequence[Prompt]) -> bool:
    """Whether the rollouts of the prompts of a step, those of all processes, take the same number
    of forward passes on every process."""
    seeing = {policy.network.sees and bool(p.images) for p in prompts}
    # blocks of attention start where the prompt ends
    same = policy.network.block_size is None and len(seeing) == 1
    sampler = task.config.sampler
    return same and SAMPLERS[sampler.name].has_fixed_forwards(sampler)


def score_groups(
    groups: Groups, inherited: Mapping[str, Sequence[float | None]] | None = None
) -> RolloutBatch:
    """Wait for the scores of groups and compute their advantages; `inherited` are rewards of what
    was written from them, by the name of the task.

    Raises:
        RewardError: a reward failed more often than the configuration allows, or none has applied
            to any rollout so far.
        Interrupted: a stop is requested on any process, while their scores are awaited.
    """
    task, rollout = groups.task, groups.rollout
    with activity("waiting for rewards"), leave_together():
        scores = groups.pending.scores()
        lookaheads = None if groups.lookaheads is None else groups.lookaheads.scores().total
    for name, values in (inherited or {}).items():
        scores.add(name, values)
    counted, lengths = scores, _length_metrics(rollout.canvas)
    if task.config.strict_len_check:
        overlong = find_overlong(rollout.canvas)
        counted = fail_overlong(scores, task.accuracy_terms, overlong)
        lengths["completions/overlong_ratio"] = fmean(gather_object(overlong))
    counted, punished = punish_overlong(counted, rollout.canvas, task.config)
    completions = [sample.completion for sample in groups.samples]
    credit = assign_credit(task, counted, *groups.place, lookaheads=lookaheads)
    metrics = credit.metrics | _component_metrics(scores) | lengths | punished | groups.metrics
    _check_applies(task, metrics, groups.prompts[0])
    metrics["time/reward_s"] = sum(scores.seconds.values())
    metrics["time/reward_wait_s"] = scores.wait_s
    made = Completions(completions, list_tokens(rollout.canvas))
    measured = measure(task.config.diversity, made, task.config.num_generations)
    metrics |= measured.gather().metrics()
    columns, slices = credit.columns, credit.slices
    chunks, length = [sample.chunks for sample in groups.samples], rollout.trace.shape[1]
    return RolloutBatch(
        prompts=groups.prompts,
        rollout=rollout,
        completions=completions,
        rewards=credit.rewards,
        advantages=credit.advantages,
        names=groups.names,
        scores=scores.components,
        metrics=metrics,
        left_out=leave_out_truncated(credit.left_out, rollout.canvas, task.config),
        token_rewards=columns if columns is None else place_rewards(columns, chunks, length),
        token_advantages=slices if slices is None else credit_tokens(rollout, slices),
    )


def _build_samples(
    task: Task,
    policy: Policy,
    prompts: Sequence[Prompt],
    rollout: Rollout,
    completions: Sequence[Completion],
) -> list[Sample]:
    """The inputs of the rewards, for the rollouts of the first of the prompts."""
    chunks: list[Any] = [None] * len(completions)
    if task.scorer.cutting is not None:
        parts = cut(policy.tokenizer, rollout.canvas, task.scorer.cutting)
        chunks = [
            tuple(chunk._replace(before=prompt.prefill + chunk.before) for chunk in own)
            for prompt, own in zip(prompts, parts, strict=False)
        ]
    some = prompts[: len(completions)]
    return [Sample.of(*each) for each in zip(some, completions, chunks, strict=True)]


def _sample_batches(
    task: Task,
    policy: Policy,
    prompts: Sequence[Prompt],
    names: Sequence[tuple[int, int]],
    seeds: tuple[Any, ...],
) -> Iterator[tuple[Rollout, Sequence[Completion]]]:
    """Finished rollouts and completions, at most `rollout_batch_size` at a time, or all of them
    where rows that end give their places to others.

    Canvases are of whole groups, also where a group is sampled in parts, so that each image of a
    prompt is encoded once.
    """
    places, group = task.config.rollouts_at_once, task.config.num_generations
    sampler = task.config.sampler
    size = len(prompts) if SAMPLERS[sampler.name].can_refill(policy, sampler) else places
    stretch = group * max(1, size // group)
    for first in range(0, len(prompts), stretch):
        canvas = policy.canvas(prompts[first : first + stretch], task.config.max_completion_length)
        for start in range(0, len(canvas), size):
            part = canvas[start : start + size]
            some = slice(first + start, first + start + len(part))
            generators = [generator(*seeds, *name) for name in names[some]]
            groups = [stable_seed(*seeds, prompt) for prompt, _ in names[some]]
            place = Place(seeds[-1], groups, [number for _, number in names[some]], group)
            rollout = sample(policy, part, task.config.sampler, generators, places, place)
            yield rollout, policy.decode(rollout.canvas, prompts[some])


def _component_metrics(local: RewardScores) -> dict[str, float]:
    """Per reward, over all processes: `rewards/<key>/mean` and `/std` of the scores, the number of
    samples without one (`/failures`, and `/none` where the reward did not apply), and the seconds
    of its calls (`/time_s`, of the slowest process)."""
    metrics = {}
    for key, mine in local.components.items():
        scores = torch.tensor(gather_object(mine), dtype=torch.float64)
        known = scores[~scores.isnan()]
        if len(known):
            metrics[f"rewards/{key}/mean"] = float(known.mean())
            metrics[f"rewards/{key}/std"] = float(known.std()) if len(known) > 1 else 0.0
        failures = sum(gather_object(local.failed[key]))
        metrics[f"rewards/{key}/failures"] = float(failures)
        metrics[f"rewards/{key}/none"] = float(scores.isnan().sum()) - failures
        metrics[f"rewards/{key}/time_s"] = max(gather_object([local.seconds[key]]))
    return metrics


def _length_metrics(canvas: Any) -> dict[str, float]:
    """TRL's `completions/…` over all processes: tokens of texts up to and including the end, and
    the share that has no end; nothing for images."""
    if canvas.valid is None:
        return {}
    ended = canvas.ends.any(-1).tolist()
    lengths = gather_object(canvas.counted.sum(-1).tolist())
    return {
        "completions/mean_length": fmean(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": 1 - fmean(gather_object(ended)),
    }


def _check_applies(task: Task, metrics: dict[str, float], prompt: Prompt) -> None:
    """Stop a run whose rewards apply to nothing: its advantages would all be 0."""
    keys = [*(term.key for term in task.scorer.terms), *(each.name for each in task.downstream)]
    unscored = [metrics.get(f"rewards/{key}/none", math.inf) for key in keys]
    if min(unscored) < task.rollouts_per_step:
        task.has_reward = True
        return
    text = (
        f"none of tasks.{task.name}.rewards ({', '.join(keys)})"
        f" applies to any of the {task.rollouts_per_step} rollouts of this step. The metadata of"
        f" {prompt.place or prompt.id}: {', '.join(prompt.metadata) or 'none'}."
    )
    if not task.has_reward:
        raise RewardError(f"{text} Choose rewards that read it, or prompts with what they read.")
    logger.warning("%s", text)
