"""Accuracy of rollouts: groups outside a band of it, and the length rule (dLLM-RL, TraceRL's code).

The accuracy of a rollout is the largest raw score of the rewards that are named for it, each 1 for
a correct completion and 0 for a wrong one; NaN where none applies. As in dLLM-RL, completions that
come within `MARGIN` tokens of the longest possible count as wrong where the length rule is on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.terms import Term

if TYPE_CHECKING:
    from torch import Tensor

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
    """Set the known scores of overlong completions to 0, and their sums accordingly.

    Args:
        scores: of B samples.
        terms: the rewards that measure accuracy.
        overlong: of each sample.
    """
    components, total = dict(scores.components), list(scores.total)
    for term in terms:
        raw = components[term.key]
        failed = [long and not math.isnan(one) for long, one in zip(overlong, raw, strict=True)]
        components[term.key] = [
            0.0 if fails else score for fails, score in zip(failed, raw, strict=True)
        ]
        total = [
            before - term.contribution(score) + term.contribution(0.0)
            if fails and before is not None
            else before
            for fails, score, before in zip(failed, raw, total, strict=True)
        ]
    return replace(scores, components=components, total=total)


def accuracies(scores: RewardScores, terms: Sequence[Term]) -> list[float]:
    """The accuracy of each sample, NaN where no reward for it applies."""
    columns = torch.tensor([scores.components[term.key] for term in terms], dtype=torch.float64)
    best = columns.nan_to_num(-torch.inf).amax(0)
    return best.where(best > -torch.inf, torch.nan).tolist()


def outside_band(accuracy: Tensor, num_generations: int, band: Sequence[float]) -> Tensor:
    """[B] bool: rollouts of groups whose mean accuracy is below or above a band; groups of which
    none is known are inside.

    Args:
        accuracy: [B], group by group, NaN where it is not known.
        num_generations: G, rollouts per prompt.
        band: lowest and highest mean that is inside.
    """
    means = accuracy.double().view(-1, num_generations).nanmean(1, keepdim=True)
    outside = (means < band[0]) | (means > band[1])
    return outside.expand(-1, num_generations).flatten()
