"""Completions near or at their maximum length: dLLM-RL counts them as wrong, DAPO punishes them.

As in dLLM-RL's TraceRL, completions that come within `MARGIN` tokens of the longest possible have
the accuracy 0. DAPO's soft punishment (arXiv 2503.14476, 3.4),

    0                                       up to longest - cache tokens
    (longest - cache - length) / cache      in the last `cache` tokens, down to -1

is added to the reward of a completion of `length` tokens, its end token counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from accelerate.utils import gather_object

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.terms import Term

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.rollouts.task_config import TaskConfig


MARGIN = 5
"""Tokens that a completion has to stay below its maximum under the length rule."""


def find_overlong(canvas: TokenCanvas) -> list[bool]:
    """Of each of B texts, whether it leaves fewer than `MARGIN` + 1 of its positions unused."""
    ended = (canvas.ends & canvas.counted).any(-1)
    lengths = canvas.counted.sum(-1) - ended.long()
    return (lengths >= canvas.response.sum(-1) - MARGIN).tolist()


def fail_overlong(
    scores: RewardScores, terms: Sequence[Term], overlong: Sequence[bool]
) -> RewardScores:
    """Set the known scores of overlong completions to 0 in the terms that measure accuracy, and
    their sums accordingly."""
    components, total = dict(scores.components), list(scores.total)
    for term in terms:
        components[term.key] = column = list(components[term.key])
        for n, (score, whole) in enumerate(zip(column, total, strict=True)):
            if overlong[n] and not math.isnan(score):
                column[n] = 0.0
                if whole is not None:
                    total[n] = whole - term.contribution(score) + term.contribution(0.0)
    return replace(scores, components=components, total=total)


def punish_overlong(
    scores: RewardScores, canvas: TokenCanvas, config: TaskConfig
) -> tuple[RewardScores, dict[str, float]]:
    """Scores with the punishment of a task as one more, and its mean over all processes."""
    cache, longest = config.soft_punish_cache, config.max_completion_length
    if cache is None or longest is None:
        return scores, {}
    punishment = soft_overlong_punishment(canvas.counted.sum(-1), longest, cache)
    pairs = zip(scores.total, punishment, strict=True)
    total = [None if whole is None else whole + own for whole, own in pairs]
    counted = [math.nan if total is None else x for total, x in zip(total, punishment, strict=True)]
    key, mean = "completions/overlong_punishment", fmean(gather_object(punishment))
    return replace(scores, total=total, components={**scores.components, key: counted}), {key: mean}


def soft_overlong_punishment(lengths: Tensor, longest: int, cache: int) -> list[float]:
    """The punishment from -1 to 0 of each of B completions with `lengths` [B] int64 tokens, of
    which the last `cache` up to the longest possible are punished, the more the later."""
    return ((longest - cache - lengths).double() / cache).clamp(-1, 0).tolist()


def leave_out_truncated(
    left_out: Tensor | None, canvas: TokenCanvas, config: TaskConfig
) -> Tensor | None:
    """[B] bool: what is left out already, and where a task says so the texts without an end."""
    if not config.mask_truncated_completions:
        return left_out
    truncated = ~canvas.ends.any(-1).cpu()
    return truncated if left_out is None else left_out | truncated
