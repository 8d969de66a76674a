"""Steps full of groups to learn from: DAPO's dynamic sampling (arXiv 2503.14476, section 3.2).

A group that the filters of a task leave out gives its place to a group of a further prompt, until
none is left out or `max_num_gen_batches` were sampled. Each place of a step has its own further
prompts and seeds, so what is trained on does not depend on the number of processes. DAPO samples
whole batches and takes the first groups that fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from accelerate.utils import gather_object

from mmrl.rollouts.rollout import Groups, RolloutBatch, sample_groups, score_groups
from mmrl.types import Rollout

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.models import Policy

SUMMED = ("time/rollout_s", "time/reward_s", "time/reward_wait_s")
"""Metrics that add up; all others are of the prompts of the step, whatever becomes of them."""


def fill_groups(
    groups: Groups, policy: Policy, inherited: Mapping[str, Sequence[float | None]] | None = None
) -> RolloutBatch:
    """The scored rollouts of a step, see `score_groups`, with further groups, which the policy
    samples, in the places of those left out. Raises RewardError, Interrupted: see `sample_groups`
    and `score_groups`."""
    batch, config = score_groups(groups, inherited), groups.task.config
    size, sampled = config.num_generations, 1
    while sampled < config.max_num_gen_batches:
        empty = _left_out(batch, size)
        number = max(gather_object([len(empty)]))
        if number == 0:
            break
        # all processes sample as many, so some sample in vain
        chosen = sorted(range(len(batch) // size), key=lambda group: group not in empty)[:number]
        names = [
            (place % config.num_prompts + sampled * config.num_prompts, sample)
            for group in chosen
            for place, sample in batch.names[group * size : (group + 1) * size]
        ]
        further = score_groups(sample_groups(groups.task, policy, *groups.place, names=names))
        batch = _replace(batch, empty, further, size)
        sampled += 1
    if config.max_num_gen_batches > 1:
        batch.metrics["num_gen_batches"] = float(sampled)
    return batch


def _left_out(batch: RolloutBatch, size: int) -> list[int]:
    """The groups of which nothing is trained on."""
    if batch.left_out is None:
        return []
    return batch.left_out.view(-1, size).all(1).nonzero().flatten().tolist()


def _replace(
    batch: RolloutBatch, places: Sequence[int], further: RolloutBatch, size: int
) -> RolloutBatch:
    """The batch with the n-th group of `further` at the n-th place, unless that is left out."""
    groups, useless = list(range(len(batch) // size)), _left_out(further, size)
    for n, place in enumerate(places):
        if n not in useless:
            groups[place] = len(batch) // size + n
    metrics = batch.metrics | {k: batch.metrics[k] + further.metrics[k] for k in SUMMED}
    rows = [group * size + sample for group in groups for sample in range(size)]
    return replace(_join(batch, further).select(rows), metrics=metrics)


def _join(one: RolloutBatch, other: RolloutBatch) -> RolloutBatch:
    def both(name: str) -> Tensor:
        return torch.cat([getattr(one, name), getattr(other, name)])

    return replace(
        one,
        prompts=one.prompts + other.prompts,
        rollout=Rollout.join([one.rollout, other.rollout]),
        completions=one.completions + other.completions,
        names=one.names + other.names,
        scores={key: own + other.scores[key] for key, own in one.scores.items()},
        **{name: both(name) for name in ("rewards", "advantages", "left_out")},
    )
