"""From the scores of a step's rollouts to their advantages, over all processes.

Without chunks, or without a value model to propagate their rewards, the weighted sum of a rollout
gives one advantage. With both, every chunk keeps what it earned, at its last position.

The accuracy of a rollout is the largest raw score of the rewards that are named for it, each 1 for
a correct completion and 0 for a wrong one; NaN where none applies.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmrl.algorithms.advantages import (
    equal_groups,
    group_advantages,
    group_statistics,
    normalize_then_sum,
)
from mmrl.algorithms.completion_value import credit_slices
from mmrl.randomness import permutation
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.terms import Term
from mmrl.types import Chunk

if TYPE_CHECKING:
    from mmrl.rollouts.tasks import Task

logger = logging.getLogger(__name__)


@dataclass
class Credit:
    """What this process's rollouts of a step earned: [B] float32 weighted sums (`rewards`), NaN
    where no reward applies, and their advantages; the metrics are of all processes together.

    `left_out` [B] bool: rollouts of the groups that the update leaves out, of zero variance or
    outside the accuracy band; None where the task leaves out none. `slices` [B, K] float32:
    advantages of the slices of the trace; None without lookaheads. `columns` [B, 1 + chunks]
    float32: advantages of the outcome and of every chunk, on one scale; None where no chunks are
    judged, or there is no value model."""

    rewards: Tensor
    advantages: Tensor
    left_out: Tensor | None
    columns: Tensor | None
    metrics: dict[str, float]
    slices: Tensor | None = None


def assign_credit(
    task: Task,
    scores: RewardScores,
    step: int,
    seed: int,
    rank: int,
    world_size: int,
    lookaheads: Sequence[float | None] | None = None,
) -> Credit:
    """Advantages of this process's rollouts, group by group, from the rewards of all; each process
    has as many. `lookaheads` are the rewards of theirs, slice by slice; None without."""
    rewards = [float("nan") if total is None else total for total in scores.total]
    everyone = torch.tensor(gather_object(rewards))
    method, number = task.algorithm, task.config.num_generations
    scale, baseline = method.scale_rewards, method.baseline
    order = list(range(len(everyone)))
    if task.config.shuffle_advantages:
        order = permutation(len(everyone), seed, "shuffle", task.name, step)
    mine = order[rank * len(rewards) : (rank + 1) * len(rewards)]
    compared, columns = everyone, None
    if method.multi_objective_aggregation == "normalize_then_sum":
        compared = normalize_then_sum(*_gather_terms(task, scores), number, method.deviation)
    advantages = group_advantages(compared, number, scale, baseline, method.deviation)[mine]
    if method.adv_clip_max is not None:
        advantages = advantages.clamp(-method.adv_clip_max, method.adv_clip_max)
    equal = equal_groups(compared, number)
    if scores.chunks is not None and method.value is not None:
        earned = _gather_columns(scores.outcomes(), scores.chunks)
        columns = group_advantages(earned, number, scale, baseline)[mine]
        equal = torch.stack([equal_groups(column, number) for column in earned.T]).all(0)
    metrics, slices = group_statistics(everyone, number), None
    value = method.completion_value
    if lookaheads is not None and value is not None:
        reached = _gather_slices(lookaheads, len(rewards))
        credit = credit_slices(everyone, reached, number, scale, value.lam)
        slices = credit.advantages[mine]
        metrics["completion_value/explained_variance"] = float(credit.explained.mean())
    left_out = equal if task.config.skip_zero_std_groups else torch.zeros_like(equal)
    if task.config.accuracy_band is not None:
        accuracy = torch.tensor(gather_object(accuracies(scores, task.accuracy_terms)))
        outside = outside_band(accuracy, number, task.config.accuracy_band)
        metrics["frac_outside_accuracy_band"] = float(outside.double().mean())
        left_out = left_out | outside
    if bool(left_out.all()):
        logger.warning("tasks.%s: all groups of step %d are left out", task.name, step + 1)
    filters = task.config.skip_zero_std_groups or task.config.accuracy_band is not None
    left = left_out[mine] if filters else None
    return Credit(torch.tensor(rewards), advantages, left, columns, metrics, slices)


def accuracies(scores: RewardScores, terms: Sequence[Term]) -> list[float]:
    """The accuracy of each sample, NaN where no reward for it applies."""
    columns = torch.tensor([scores.components[term.key] for term in terms], dtype=torch.float64)
    best = columns.nan_to_num(-torch.inf).amax(0)
    return best.where(best > -torch.inf, torch.nan).tolist()


def outside_band(accuracy: Tensor, num_generations: int, band: Sequence[float]) -> Tensor:
    """[B] bool: rollouts of groups of G whose mean accuracy is below or above a band; groups of
    which none is known are inside. Accuracies [B] are NaN where they are not known."""
    means = accuracy.double().view(-1, num_generations).nanmean(1, keepdim=True)
    outside = (means < band[0]) | (means > band[1])
    return outside.expand(-1, num_generations).flatten()


def _gather_terms(task: Task, scores: RewardScores) -> tuple[Tensor, Tensor]:
    """[B, R] scaled scores of all processes' rollouts, NaN where a reward does not apply, and the
    weights [R]; what is no reward of the task counts as it is."""
    terms = {term.key: term for term in task.scorer.terms}
    own = [
        [terms[key].scale * x + terms[key].offset for x in column] if key in terms else column
        for key, column in scores.components.items()
    ]
    rows = gather_object(list(zip(*own, strict=True)))
    weights = [terms[key].weight if key in terms else 1.0 for key in scores.components]
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def _gather_slices(lookaheads: Sequence[float | None], count: int) -> Tensor:
    """[K - 1, B] rewards of the lookaheads of all processes' rollouts, `count` on each."""
    own = [math.nan if reward is None else reward for reward in lookaheads]
    rows = gather_object([own[start::count] for start in range(count)])
    return torch.tensor(rows, dtype=torch.float64).T


def _gather_columns(outcomes: list[float], chunks: list[list[float]]) -> Tensor:
    """Rewards of all processes' rollouts and their chunks, NaN where one has fewer than another."""
    rows = gather_object([[first, *rest] for first, rest in zip(outcomes, chunks, strict=True)])
    return pad_sequence([torch.tensor(row) for row in rows], True, torch.nan)


def place_at_end(outcomes: Tensor, length: int) -> Tensor:
    """Rewards [B] for whole rows, at the last of their positions: [B, length]."""
    return torch.nn.functional.pad(outcomes[:, None], (length - 1, 0))


def place_rewards(columns: Tensor, chunks: Sequence[Sequence[Chunk] | None], length: int) -> Tensor:
    """[B, L]: advantages of the outcome and of chunks at their positions, a chunk's at its last
    one, the outcome's at the end of the row, 0 elsewhere. Columns [B, 1 + chunks] have the outcome
    first, and no fewer than a rollout has chunks; None where it was not cut."""
    rewards = place_at_end(columns[:, 0], length)
    for row, own in enumerate(chunks):
        for n, chunk in enumerate(own or (), start=1):
            rewards[row, chunk.end] += columns[row, n]
    return rewards
