"""Surrogates: from log-ratios and advantages to the terms that an aggregation averages.

clipped     min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), PPO (arXiv 1707.06347) with a
            separate upper range (DAPO, arXiv 2503.14476)
geometric   A exp(mean of a row's clipped log-ratios), each clipped to [-eps_low, eps_high] on
            the side where it gains: GMPO (arXiv 2507.20673). Every entry holds the row's value
boundary    A (1 + d) or A exp(d), never above A r: BGPO (arXiv 2510.11683), without a clip
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """`values` [K, B, L] to maximise, and where a ratio is held back from `below` and `above`."""

    values: Tensor
    below: Tensor
    above: Tensor


def clipped(
    log_ratio: Tensor, counts: Tensor, advantages: Tensor, epsilon: tuple[float, float]
) -> Terms:
    """PPO's pessimistic minimum, entry by entry."""
    ratio = log_ratio.exp()
    low, high = 1 - epsilon[0], 1 + epsilon[1]
    values = torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    return Terms(values, (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0))


def geometric(
    log_ratio: Tensor, counts: Tensor, advantages: Tensor, epsilon: tuple[float, float]
) -> Terms:
    """The geometric mean of a row's clipped ratios over all its passes, times the advantage."""
    below, above = log_ratio < -epsilon[0], log_ratio > epsilon[1]
    below, above = below & (advantages < 0), above & (advantages > 0)
    held = log_ratio.masked_fill(below, -epsilon[0]).masked_fill(above, epsilon[1])
    number = counts.sum((0, -1), keepdim=True).clamp(min=1)
    mean = (held * counts).sum((0, -1), keepdim=True) / number
    return Terms((mean.exp() * advantages).expand_as(log_ratio), below, above)


def boundary(log_ratio: Tensor, advantages: Tensor, linear: Tensor) -> Terms:
    """A linear lower bound where `linear` [B], else the exponential of Jensen's inequality."""
    rows = linear[None, :, None]
    # the side that is not taken must not overflow, or its gradient is not a number
    ratio = torch.where(rows, 1 + log_ratio, log_ratio.masked_fill(rows, 0.0).exp())
    nowhere = torch.zeros_like(log_ratio, dtype=torch.bool)
    return Terms(ratio * advantages, nowhere, nowhere)


SURROGATES = {"gmpo": geometric}
"""Surrogates of aggregations that do not average clipped terms."""
