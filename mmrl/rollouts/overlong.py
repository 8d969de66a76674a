"""Completions near or at their maximum length: DAPO's soft punishment (arXiv 2503.14476, 3.4).

    0                                       up to longest - cache tokens
    (longest - cache - length) / cache      in the last `cache` tokens, down to -1

is added to the reward of a completion of `length` tokens, its end token counted.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from accelerate.utils import gather_object

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.rewards.scoring.reward_scores import RewardScores

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.rollouts.task_config import TaskConfig


def punish_overlong(
    scores: RewardScores, canvas: TokenCanvas, config: TaskConfig
) -> tuple[RewardScores, dict[str, float]]:
    """Scores with the punishment of a task in their sums, and its mean over all processes."""
    cache, longest = config.soft_punish_cache, config.max_completion_length
    if cache is None or longest is None:
        return scores, {}
    punishment = soft_overlong_punishment(canvas.counted.sum(-1), longest, cache)
    pairs = zip(scores.total, punishment, strict=True)
    total = [None if whole is None else whole + own for whole, own in pairs]
    mean = fmean(gather_object(punishment))
    return replace(scores, total=total), {"completions/overlong_punishment": mean}


def soft_overlong_punishment(lengths: Tensor, longest: int, cache: int) -> list[float]:
    """The punishment of each of B completions, from -1 to 0.

    Args:
        lengths: [B] int64, tokens of each.
        longest: tokens of the longest possible.
        cache: how many of these are punished, the more the later.
    """
    return ((longest - cache - lengths).double() / cache).clamp(-1, 0).tolist()


def leave_out_truncated(
    left_out: Tensor | None, canvas: TokenCanvas, config: TaskConfig
) -> Tensor | None:
    """[B] bool: what is left out already, and where a task says so the texts without an end."""
    if not config.mask_truncated_completions:
        return left_out
    truncated = ~canvas.ends.any(-1).cpu()
    return truncated if left_out is None else left_out | truncated
