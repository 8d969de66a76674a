"""What a method says about its value model, and the loss the value model learns from.

    loss_j = 1/2 max( (V_j - Ret_j)^2, (clip(V_j, V_j^old +- epsilon) - Ret_j)^2 )

PPO's clipped value loss (arXiv 1707.06347, as in its public code), per scored token of the trace,
averaged as the terms of the policy are (TraceRL, arXiv 2509.06949: a mean over a slice's tokens,
then over slices).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.gae import Estimates, estimate, position_rewards
from mmrl.config import check, check_choice

BACKBONES = ("shared", "copy")


@dataclass(kw_only=True)
class ValueConfig:
    """Settings of the value model; TRL's names where PPO has them there."""

    backbone: str = "copy"
    """What the head reads: the hidden states of the policy (shared), or of a copy of its own."""
    gamma: float = 1.0
    """Discount per denoising step (per slice, where slices hold several)."""
    lam: float = 1.0
    """Lambda of generalised advantage estimation."""
    cliprange_value: float | None = None
    """How far a value may move from its old one; null takes `epsilon` of the ratio."""
    vf_coef: float = 0.1
    """Weight of the value loss beside the policy's (backbone: shared)."""
    learning_rate_scale: float = 1.0
    """Factor on the learning rate, for the head and for a copied backbone."""

    def __post_init__(self) -> None:
        check_choice("algorithm.value.backbone", self.backbone, BACKBONES)
        for key in ("gamma", "lam"):
            share = getattr(self, key)
            check(0 <= share <= 1, f"algorithm.value.{key}", share, "between 0 and 1")
        reach = self.cliprange_value
        allowed = "null or 0 or more"
        check(reach is None or reach >= 0, "algorithm.value.cliprange_value", reach, allowed)
        check(self.vf_coef >= 0, "algorithm.value.vf_coef", self.vf_coef, "0 or more")
        scale = self.learning_rate_scale
        check(scale > 0, "algorithm.value.learning_rate_scale", scale, "above 0")


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
