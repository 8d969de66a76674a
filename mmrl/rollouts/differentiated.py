"""Rewards of latents that have a gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.rollouts.rollout import RolloutBatch
from mmrl.types import Sample

if TYPE_CHECKING:
    from mmrl.models import Policy
    from mmrl.rollouts.tasks import Task


def differentiate(
    task: Task, policy: Policy, batch: RolloutBatch, rows: slice, finished: Tensor
) -> Tensor:
    """[n, B] float32: the weighted sum of the task's rewards of n copies [n, B, D] of the latents
    of some rows, with its gradient. Each is decoded in float32, and again in the backward pass
    instead of being kept."""
    canvas: Any = batch.rollout.canvas[rows]
    prompts = batch.prompts[rows]
    pairs = zip(prompts, batch.completions[rows], strict=True)
    samples = [Sample.of(prompt, completion) for prompt, completion in pairs]
    found = []
    for latents in finished:
        pixels = policy.render(replace(canvas, path=latents[:, None]), prompts)
        found.append(task.scorer.differentiate(pixels, samples))
    return torch.stack(found).to(finished.device)
