"""The one loss all algorithms share.

    loss = sum_e w_e [ -min(r_e A, clip(r_e, 1 - eps_low, 1 + eps_high) A) + beta KL_e ]

over the counted entries e of all mask draws: r_e the ratio at the chosen level, A the advantage of
the rollout, w_e the weight of the chosen aggregation. Only positions hidden in a draw are counted.
Clip as in PPO (arXiv 1707.06347) with a separate upper bound (DAPO, arXiv 2503.14476).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.kl import KL
from mmrl.algorithms.ratios import RATIO_LEVELS
from mmrl.estimators import BOUNDS
from mmrl.types import Passes

if TYPE_CHECKING:
    from mmrl.algorithms import AlgorithmConfig


@dataclass
class LossInputs:
    """What the loss of one micro-batch is made of.

    `new`, `old`, `reference`: log-probs [K, B, L] of the same passes (`reference` None when beta is
    0); `entropy` [K, B, L]; `advantages` [B].
    """

    passes: Passes
    new: Tensor
    old: Tensor
    reference: Tensor | None
    entropy: Tensor
    advantages: Tensor


def policy_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This micro-batch's share of the batch's loss, and sums for the metrics.

    Args:
        inputs: log-probs and advantages.
        config: bound, ratio level, clip range, KL.
        size: counts of the whole batch.

    Returns:
        Scalar loss, and metrics that add up over micro-batches and ranks, each already weighted by
        its share of the batch.
    """
    bound = BOUNDS[config.bound]
    new, counts = bound(inputs.new, inputs.passes)
    old, _ = bound(inputs.old, inputs.passes)
    weights = AGGREGATIONS[config.aggregation](counts, size).to(new.dtype)
    log_ratio = RATIO_LEVELS[config.ratio_level](new, old, counts)
    ratio = log_ratio.exp()
    low, high = 1 - config.epsilon, 1 + config.upper_epsilon
    advantages = inputs.advantages[None, :, None].to(new.dtype)
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    loss = -(surrogate * weights).sum()
    metrics = {
        "policy_loss": loss.detach(),
        "ratio": share(ratio, counts, size),
        "clip_ratio/low_mean": share((ratio < low) & (advantages < 0), counts, size),
        "clip_ratio/high_mean": share((ratio > high) & (advantages > 0), counts, size),
        "approx_kl": share(KL["k3"](new, old), counts, size),
        "entropy": inputs.entropy.sum() / max(1, size.tokens),
    }
    if inputs.reference is not None:
        scored = inputs.passes.scored
        # both 0 elsewhere, so that nothing there can overflow and spoil the gradient
        difference = KL[config.kl](inputs.new * scored, inputs.reference * scored)
        per_token = AGGREGATIONS[config.aggregation](scored, size.per_token())
        loss = loss + config.beta * (difference * per_token).sum()
        metrics["kl"] = difference.detach().sum() / max(1, size.tokens)
    return loss, metrics


def share(values: Tensor, counts: Tensor, size: BatchSize) -> Tensor:
    """Sum over the counted entries, divided by the entries of the whole batch."""
    return (values.detach().float() * counts).sum() / max(1, size.entries)
