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

from mmrl.algorithms import at_end
from mmrl.chunks import cut
from mmrl.credit import Chunks, credit, placed
from mmrl.randomness import generator
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
        advantages: [B] float32, of the weighted sums.
        names: B (prompt, sample) places in the step, which name the mask draws.
        scores: raw scores by reward key, B each.
        metrics: of all processes together.
        left_out: [B] bool, rollouts that the update leaves out; None for none.
        token_rewards: [B, L] float32, for a value model: what each chunk of a completion earned at
            its last position, and the rest at the last of the row, as advantages on one scale;
            None where no chunks are judged.
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
    token_rewards: Tensor | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def earned(self) -> Tensor:
        """[B, L] rewards for the row up to a position, as advantages among the group."""
        if self.token_rewards is not None:
            return self.token_rewards
        return at_end(self.advantages, self.rollout.canvas.tokens.shape[1])


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
        batches = list(_batches(task, policy, prompts, names, (seed, "rollout", task.name, step)))
    rollout = concatenate([part for part, _ in batches])
    completions = [completion for _, part in batches for completion in part]
    sampled = time.perf_counter()
    chunks: Chunks = [None] * len(prompts)
    if task.scorer.cutting is not None:
        chunks = cut(policy.tokenizer, rollout.canvas, task.scorer.cutting)
    samples = [Sample.of(*each) for each in zip(prompts, completions, chunks, strict=True)]
    scores = task.scorer.score(samples)
    earned = credit(task, scores, step, seed, rank, world_size)
    metrics = earned.metrics | _component_metrics(scores) | _length_metrics(rollout.canvas)
    _check_applies(task, metrics, prompts[0])
    metrics |= {
        "time/rollout_s": sampled - started,
        "time/reward_s": time.perf_counter() - sampled,
        "perf/tokens_per_s": world_size
        * float(rollout.canvas.response.sum())
        / (sampled - started),
    }
    length = rollout.canvas.tokens.shape[1]
    return RolloutBatch(
        prompts, rollout, completions, earned.rewards, earned.advantages, names,
        scores.components, metrics, earned.equal if task.config.skip_zero_std_groups else None,
        None if earned.columns is None else placed(earned.columns, chunks, length),
    )  # fmt: skip


def _batches(
    task: Task,
    policy: Policy,
    prompts: Sequence[Prompt],
    names: Sequence[tuple[int, int]],
    seeds: tuple[Any, ...],
) -> Iterator[tuple[Rollout, Sequence[str | Image.Image]]]:
    """Finished rollouts and completions, at most `rollout_batch_size` at a time.

    Canvases are of whole groups, also where a group is sampled in parts: what its prompt shows is
    looked at once.
    """
    size, group = task.config.rollout_batch_size, task.config.num_generations
    stretch = group * max(1, size // group)
    for first in range(0, len(prompts), stretch):
        canvas = policy.canvas(prompts[first : first + stretch], task.config.max_completion_length)
        for start in range(0, len(canvas), size):
            part = canvas[start : start + size]
            some = slice(first + start, first + start + len(part))
            generators = [generator(*seeds, *name) for name in names[some]]
            rollout = sample(policy, part, task.config.sampler, generators)
            yield rollout, policy.decode(rollout.canvas, prompts[some])


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
