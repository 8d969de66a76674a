"""Credit for the slices of a trace, from what a completion in one pass earns after each of them.

A rollout is written in K slices of about equal size, each of whole denoising steps. After slice k
the open positions are filled in one pass, each with its most likely token, and the result gets the
rewards of a finished rollout: phi_k. With a bar for the mean over the group, the value of the state
is what that score says of the advantage of the outcome r,

    V_k = b_k (phi_k - phi_k bar),    V_0 = 0,    V_K = (r - r bar) / deviation

where b_k >= 0 is the least-squares coefficient over all rollouts of the step: near 0 while the
completion says nothing yet, near 1 once everything is decided. The advantage of the tokens of slice
k is that of generalised advantage estimation (arXiv 1506.02438) with gamma = 1,

    A_k = sum over l >= k of lambda^(l - k) (V_(l + 1) - V_l)

The deviation is that of the step's outcomes, or 1 (`scale_rewards`). That of the group is not
offered: where its outcomes hardly differ, its values may. The differences add up to the advantage
of the outcome. With lambda = 1 a slice is credited with all that follows (and its value is a
baseline); with lambda = 0 only with what it changed, so that the tokens that decide nothing add no
noise to the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mmrl.algorithms.advantages import equal_groups, group_advantages
from mmrl.algorithms.value import estimate_gae


class SliceCredit(NamedTuple):
    """`advantages` [B, K] float32 of the slices, and `explained` [K - 1], the share of the variance
    of outcomes within groups that the value after each slice explains."""

    advantages: Tensor
    explained: Tensor


def slice_trace(trace: Tensor, counted: Tensor, slices: int) -> Tensor:
    """[B, L] int64: the slice, 0 to K - 1, in which each position was written, -1 where it was
    given.

    `trace` [B, L] int64 is the denoising step of each position, -1 where it was given; the numbers
    of positions that count (`counted` [B, L] bool) make slices equal. All positions of a step are
    in the slice that holds its middle; a slice may have none."""
    steps = trace.clamp(min=0)
    per_step = counted.new_zeros(len(steps), int(steps.max()) + 1).long()
    per_step.scatter_add_(1, steps, (counted & (trace >= 0)).long())
    twice = (2 * per_step.cumsum(1) - per_step).gather(1, steps)  # the middle of the step
    total = per_step.sum(1, keepdim=True).clamp(min=1)
    return (twice * slices // (2 * total)).clamp(max=slices - 1).where(trace >= 0, -1)


def credit_slices(
    outcomes: Tensor, scores: Tensor, num_generations: int, scale_rewards: str, lam: float
) -> SliceCredit:
    """Advantages of the slices of all rollouts of a step, in groups of `num_generations`.

    `outcomes` [B] float are the rewards of the rollouts, NaN where none applies: such a rollout
    gets 0, as do all of a group whose rewards are equal. `scores` [K - 1, B] float are those of the
    completions after each slice but the last; NaN says nothing. `scale_rewards` is batch or
    none."""
    outcome = group_advantages(outcomes, num_generations, scale_rewards).double()
    known = ~outcomes.isnan() & ~equal_groups(outcomes, num_generations)
    predictors = group_advantages(scores.T, num_generations, "none").T.double() * known
    squares, products = predictors.square().sum(1), (predictors * outcome).sum(1)
    slopes = (products / squares.clamp(min=1e-12)).clamp(min=0)
    values = outcome.new_zeros(len(outcome), len(scores) + 1)
    values[:, 1:] = (slopes[:, None] * predictors).T
    paid = torch.zeros_like(values)
    paid[:, -1] = outcome
    written = known[:, None].expand_as(values)
    advantages = estimate_gae(paid, values, written, 1.0, lam).advantages
    residuals = (outcome[:, None] - values[:, 1:]).square().sum(0)
    explained = 1 - residuals / outcome.square().sum().clamp(min=1e-12)
    return SliceCredit(advantages.float(), explained)
