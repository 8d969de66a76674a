"""Rollouts: prompts of one step -> groups of finished, scored canvases on each process.

Prompts are dealt to processes in stretches of whole groups. Every rollout has its own generator,
named by (run seed, task, step, prompt, sample), so canvases do not depend on how many processes or
batches share the work.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from accelerate.utils import gather_object
from PIL import Image
from torch import Tensor

from mmrl.algorithms import equal_groups, group_advantages, group_statistics
from mmrl.randomness import generator, permutation
from mmrl.samplers import sample
from mmrl.types import Canvas, Features, Prompt, Rollout, Sample
from rewards.scoring import RewardError, Scores

if TYPE_CHECKING:
    from mmrl.tasks import Task
    from models import Policy

logger = logging.getLogger(__name__)


@dataclass
class RolloutBatch:
    """This process's rollouts of one step.

    Attributes:
        prompts: B prompts, group by group.
        rollout: their finished canvases.
        completions: decoded.
        rewards: [B] float32 weighted sums, NaN where no reward applies.
        advantages: [B] float32.
        names: B (prompt, sample) places in the step, which name the mask draws.
        scores: raw scores by reward key, B each.
        metrics: of all processes together.
        left_out: [B] bool, rollouts that the update leaves out; None for none.
    """

    prompts: list[Prompt]
    rollout: Rollout
    completions: list[str | Image.Image]
    rewards: Tensor
    advantages: Tensor
    names: list[tuple[int, int]]
    scores: dict[str, list[float]]
    metrics: dict[str, float] = field(default_factory=dict)
    left_out: Tensor | None = None

    def __len__(self) -> int:
        return len(self.prompts)


def roll_out(
    task: Task, policy: Policy, step: int, seed: int, rank: int, world_size: int
) -> RolloutBatch:
    """Sample and score the groups of one step.

    Args:
        task: prompts, sampler, rewards.
        policy: what samples; called without gradient.
        step: step of the run.
        seed: seed of the run.
        rank: this process.
        world_size: number of processes.

    Raises:
        RewardError: a reward failed more often than the configuration allows, or none has applied
            to any rollout so far.
    """
    names = task.places(rank, world_size)
    chosen = task.step_prompts(step, seed)
    prompts = [chosen[place] for place, _ in names]
    started = time.perf_counter()
    with policy.keeping_pace():
        chunks = list(_chunks(task, policy, prompts, names, (seed, "rollout", task.name, step)))
    rollout = concatenate([part for part, _ in chunks])
    completions = [completion for _, part in chunks for completion in part]
    sampled = time.perf_counter()
    samples = [
        Sample.of(prompt, completion)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    scores = task.scorer.score(samples)
    rewards = [float("nan") if total is None else total for total in scores.total]
    advantages, equal, metrics = _advantages(task, rewards, step, seed, rank, world_size)
    metrics |= _component_metrics(scores) | _length_metrics(rollout.canvas)
    _check_applies(task, metrics, prompts[0])
    metrics |= {
        "time/rollout_s": sampled - started,
        "time/reward_s": time.perf_counter() - sampled,
        "perf/tokens_per_s": world_size
        * float(rollout.canvas.response.sum())
        / (sampled - started),
    }
    return RolloutBatch(
        prompts, rollout, completions, torch.tensor(rewards), advantages, names,
        scores.components, metrics, equal if task.config.skip_zero_std_groups else None,
    )  # fmt: skip


def _chunks(
    task: Task,
    policy: Policy,
    prompts: Sequence[Prompt],
    names: Sequence[tuple[int, int]],
    seeds: tuple[Any, ...],
) -> Iterator[tuple[Rollout, Sequence[str | Image.Image]]]:
    """Finished rollouts and completions, at most `rollout_batch_size` at a time."""
    for first in range(0, len(prompts), task.config.rollout_batch_size):
        some = slice(first, first + task.config.rollout_batch_size)
        generators = [generator(*seeds, *name) for name in names[some]]
        canvas = policy.canvas(prompts[some], task.config.max_completion_length)
        rollout = sample(policy, canvas, task.config.sampler, generators)
        yield rollout, policy.decode(rollout.canvas, prompts[some])


def _advantages(
    task: Task, rewards: list[float], step: int, seed: int, rank: int, world_size: int
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """This process's advantages, computed from the rewards of all of them, and which of them are
    of groups without a spread."""
    everyone = torch.tensor(gather_object(rewards))
    number, scale = task.config.num_generations, task.algorithm.scale_rewards
    advantages, equal = group_advantages(everyone, number, scale), equal_groups(everyone, number)
    if task.config.shuffle_advantages:
        order = permutation(len(advantages), seed, "shuffle", task.name, step)
        advantages, equal = advantages[order], equal[order]
    mine = slice(rank * len(rewards), (rank + 1) * len(rewards))
    return advantages[mine], equal[mine], group_statistics(everyone, number)


def _component_metrics(local: Scores) -> dict[str, float]:
    """`rewards/<key>/mean` and `/std` over all processes, and how many samples have no score:
    `/failures` of the reward, and `/none` where it did not apply."""
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
    return metrics


def _length_metrics(canvas: Canvas) -> dict[str, float]:
    """TRL's `completions/…` over all processes: tokens of texts up to and including the end, and
    the share that has no end; nothing for images."""
    if canvas.valid is None:
        return {}
    ends = torch.tensor(canvas.stop_ids, device=canvas.tokens.device)
    ended = (torch.isin(canvas.tokens, ends) & canvas.response).any(-1).tolist()
    lengths = gather_object(canvas.scorable.sum(-1).tolist())
    return {
        "completions/mean_length": fmean(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": 1 - fmean(gather_object(ended)),
    }


def _check_applies(task: Task, metrics: dict[str, float], prompt: Prompt) -> None:
    """Stop a run whose rewards apply to nothing: its advantages would all be 0."""
    unscored = [metrics[f"rewards/{term.key}/none"] for term in task.scorer.terms]
    if min(unscored) < task.rollouts_per_step:
        task.rewarded = True
        return
    text = (
        f"none of tasks.{task.name}.rewards ({', '.join(term.key for term in task.scorer.terms)})"
        f" applies to any of the {task.rollouts_per_step} rollouts of this step. The metadata of"
        f" {prompt.place or prompt.id}: {', '.join(prompt.metadata) or 'none'}."
    )
    if not task.rewarded:
        raise RewardError(f"{text} Choose rewards that read it, or prompts with what they read.")
    logger.warning("%s", text)


def concatenate(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of one task as one batch; shorter rows are padded on the left, never attended to."""
    length = max(part.canvas.tokens.shape[1] for part in parts)
    padded = [_pad_left(part, length - part.canvas.tokens.shape[1]) for part in parts]
    for name in ("attend", "uncond_attend", "valid"):
        _stated(padded, name)
    first, features = padded[0].canvas, [part.canvas.features for part in padded]
    seen = [known for known in features if known is not None]
    tensors = {
        name: _cat([getattr(part.canvas, name) for part in padded])
        for name in ("tokens", "response", "attend", "uncond_tokens", "uncond_attend", "valid")
    }
    return replace(
        padded[0],
        canvas=replace(first, **tensors, features=Features.joined(seen) if seen else None),
        written_at=torch.cat([part.written_at for part in padded]),
        logprobs=torch.cat([part.logprobs for part in padded]),
        seeds=_cat([part.seeds for part in padded]),
        forwards=sum(part.forwards for part in padded),
    )


def _stated(parts: list[Rollout], name: str) -> None:
    """Where some parts have a mask, give the others theirs, which leaves nothing out."""
    masks = [getattr(part.canvas, name) for part in parts]
    if all(mask is None for mask in masks):
        return
    for n, (part, mask) in enumerate(zip(parts, masks, strict=True)):
        full = torch.ones_like(part.canvas.response) if mask is None else mask
        parts[n] = replace(part, canvas=replace(part.canvas, **{name: full}))


def _cat(tensors: list[Tensor | None]) -> Tensor | None:
    known = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(known) if known else None


def _pad_left(rollout: Rollout, width: int) -> Rollout:
    if width == 0:
        return rollout
    canvas: Canvas = rollout.canvas
    full = torch.ones_like(canvas.response)

    def pad(tensor: Tensor | None, value: int | bool) -> Tensor | None:
        return None if tensor is None else F.pad(tensor, (width, 0), value=value)

    padded = replace(
        canvas,
        tokens=pad(canvas.tokens, 0),
        response=pad(canvas.response, False),
        attend=pad(full if canvas.attend is None else canvas.attend, False),
        uncond_tokens=pad(canvas.uncond_tokens, 0),
        uncond_attend=pad(full if canvas.uncond_attend is None else canvas.uncond_attend, False),
        valid=pad(canvas.valid, False),
        features=canvas.features and canvas.features.padded(width),
    )
    return replace(
        rollout,
        canvas=padded,
        written_at=F.pad(rollout.written_at, (width, 0), value=-1),
        logprobs=F.pad(rollout.logprobs, (width, 0)),
    )
