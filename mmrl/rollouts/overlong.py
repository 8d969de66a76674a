"""Completions near or at their maximum length: DAPO's soft punishment (arXiv 2503.14476, 3.4).

    0                                       up to longest - cache tokens
    (longest - cache - length) / cache      in the last `cache` tokens, down to -1

is added to the reward of a completion of `length` tokens, its end token counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.types import Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def soft_overlong_punishment(lengths: Tensor, longest: int, cache: int) -> list[float]:
    """The punishment of each of B completions, from -1 to 0.

    Args:
        lengths: [B] int64, tokens of each.
        longest: tokens of the longest possible.
        cache: how many of these are punished, the more the later.
    """
    return ((longest - cache - lengths).double() / cache).clamp(-1, 0).tolist()


def add_punishment(scores: RewardScores, punishment: Sequence[float]) -> RewardScores:
    """Scores with a punishment in the sum of every sample that has one."""
    pairs = zip(scores.total, punishment, strict=True)
    return replace(scores, total=[None if total is None else total + own for total, own in pairs])


def leave_out_truncated(left_out: Tensor | None, canvas: Canvas) -> Tensor:
    """[B] bool: what is left out already, and the completions without an end."""
    truncated = ~canvas.ends.any(-1).cpu()
    return truncated if left_out is None else left_out | truncated
