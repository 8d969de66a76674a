"""The correction of a loss whose rollouts another program sampled, with weights or kernels that are
not quite those of the trainer (TRL 1.16, `vllm_importance_sampling_mode`):

    weight = exp(log pi_old(a) - log pi_sampler(a))      token:    of each action
             exp(sum_a …)                                sequence: of a row
    …_truncate: weight clamped to [clip_min, clip_max];  …_mask: 0 outside of it

An action whose log-prob by the sampler is not a number counts as without difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def importance_weights(
    old: Tensor, sampled: Tensor, scored: Tensor, mode: str, low: float | None, high: float
) -> Tensor:
    """Weights of the terms of a loss, [K, B, N] for tokens and [K, B, 1] for sequences; `old`
    [K, B, N] by the trainer, `sampled` [B, N] by the sampler, `scored` [K, B, N] bool, `mode`
    sequence_mask, sequence_truncate, token_mask or token_truncate."""
    difference = (old - sampled).nan_to_num(nan=0.0) * scored
    level, _, rule = mode.partition("_")
    if level == "sequence":
        difference = difference.sum(-1, keepdim=True)
    weights = difference.float().exp()
    if rule == "truncate":
        return weights.clamp(min=low, max=high)
    inside = weights <= high
    if low is not None:
        inside &= weights >= low
    return weights * inside


@dataclass
class Mismatch:
    """How far a sampler's log-probs are from the trainer's, over some actions: the sums of their
    absolute differences and of k3, the largest difference, and of the weights of the correction
    the least, the greatest, the sum and the number."""

    count: int = 0
    total: float = 0.0
    k3: float = 0.0
    largest: float = 0.0
    least_weight: float = math.inf
    greatest_weight: float = 0.0
    weight_sum: float = 0.0
    weights: int = 0

    def add(self, old: Tensor, sampled: Tensor, scored: Tensor, weights: Tensor) -> None:
        """Count further rows; arguments as of `importance_weights`, and its result."""
        difference = (old - sampled).double()[scored]
        kept = weights.flatten() if weights.shape[-1] == 1 else weights[scored]
        if not len(difference):
            return
        self.count += len(difference)
        self.total += float(difference.abs().sum())
        self.k3 += float((difference.exp() - 1 - difference).sum())
        self.largest = max(self.largest, float(difference.abs().max()))
        self.least_weight = min(self.least_weight, float(kept.min()))
        self.greatest_weight = max(self.greatest_weight, float(kept.max()))
        self.weight_sum += float(kept.sum())
        self.weights += len(kept)

    @classmethod
    def merge(cls, parts: Sequence[Mismatch]) -> Mismatch:
        """That of all actions of some parts."""
        columns = zip(*(astuple(part) for part in parts), strict=True)
        rules = [sum, sum, sum, max, min, max, sum, sum]
        return cls(*(rule(column) for rule, column in zip(rules, columns, strict=True)))

    @property
    def mean(self) -> float:
        """The mean absolute difference of an action."""
        return self.total / max(1, self.count)

    def metrics(self) -> dict[str, float]:
        """Under TRL's names, and k3 beside them."""
        return {
            "sampling/sampling_logp_difference/mean": self.mean,
            "sampling/sampling_logp_difference/max": self.largest,
            "sampling/sampling_logp_difference/k3": self.k3 / max(1, self.count),
            "sampling/importance_sampling_ratio/min": self.least_weight if self.weights else 0.0,
            "sampling/importance_sampling_ratio/mean": self.weight_sum / max(1, self.weights),
            "sampling/importance_sampling_ratio/max": self.greatest_weight,
        }
