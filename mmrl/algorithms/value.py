"""The loss that a value model learns from.

    loss_j = 1/2 max( (V_j - Ret_j)^2, (clip(V_j, V_j^old +- epsilon) - Ret_j)^2 )

PPO's clipped value loss (arXiv 1707.06347, as in its public code), per scored token of the trace,
averaged as the terms of the policy are (TraceRL, arXiv 2509.06949: a mean over a slice's tokens,
then over slices).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.gae import Estimates, estimate, position_rewards
from mmrl.algorithms.value_config import ValueConfig


class ValueInputs(NamedTuple):
    """What the value loss is made of, [K, B, L] float32 each.

    `values` with their gradient, `old` values, `returns`, and the `weights` of the tokens in the
    batch's mean, 0 where a token does not count.
    """

    values: Tensor
    old: Tensor
    returns: Tensor
    weights: Tensor


def appraise(values: Tensor, rewards: Tensor, scored: Tensor, settings: ValueConfig) -> Estimates:
    """Returns and advantages of the tokens of finished rollouts.

    Args:
        values: [K, B, L], predicted by the value model as it was when the policy sampled.
        rewards: [B, L] what was earned up to a position, as advantages among the group; for the
            outcome that is the last one. NaN in a row where no reward applies: such a rollout
            teaches nothing.
        scored: [K, B, L] bool, one pass per slice of the trace.
        settings: discounts.
    """
    counted = scored & ~rewards.isnan().any(-1)[None, :, None]
    paid = position_rewards(rewards.nan_to_num(), counted)
    return estimate(paid, values, counted, settings.gamma, settings.lam)


def value_loss(
    inputs: ValueInputs, epsilon: float, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This part's share of the batch's value loss, and sums for the metrics.

    Args:
        inputs: values and what they should be.
        epsilon: how far a value may move from its old one before only the way back pays.
        size: counts of the whole batch.
    """
    values, old, returns, weights = inputs
    held = values.clamp(old - epsilon, old + epsilon)
    free, bound = (values - returns).square(), (held - returns).square()
    loss = (torch.maximum(free, bound) / 2 * weights).sum()
    counts = weights > 0
    metrics = {
        "loss/value_avg": loss.detach(),
        "val/clipfrac_avg": ((bound > free) & counts).sum() / max(1, size.tokens),
        "val/mean": (values.detach() * counts).sum() / max(1, size.tokens),
    }
    return loss, metrics
