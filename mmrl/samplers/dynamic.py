"""Dynamic: every step writes all positions at least as certain as a threshold, at least one.

Fast-dLLM's parallel decoding (arXiv 2505.22618); with `at_least: quota` SDAR's, which is never
slower than the static rule. The last step of a block writes all that is open, so with fewer steps
than positions no mask remains; with as many the rule is the public one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mmrl.config import check
from mmrl.positions import Positions
from mmrl.samplers.confidence import RankConfig, most_certain, quota, rank_score, rank_scores
from mmrl.samplers.rule import Prediction, Proposal, Rule, State, draw_tokens

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class DynamicConfig(RankConfig):
    """Options of the dynamic rule."""

    threshold: float = 0.9
    """Positions at least this certain are written; at most 0 for neg_entropy."""
    at_least: Literal["one", "quota"] = "one"
    """Positions that a step writes where fewer are certain: one, or its even share."""


def check_threshold(config: DynamicConfig) -> None:
    """Raise a ConfigError unless the threshold is one of the target."""
    targets = "confidence, margin or neg_entropy for the dynamic rule"
    named = config.target != "random"
    check(named, "sampler.target", config.target, targets, "Chance has no threshold.")
    if config.target == "neg_entropy":
        holds, allowed = config.threshold <= 0, "at most 0 for neg_entropy"
        advice = "It is a negative entropy in nats, such as -0.5."
    else:
        holds, allowed, advice = 0 <= config.threshold <= 1, "in [0, 1]", ""
    check(holds, "sampler.threshold", config.threshold, allowed, advice)


def candidates(state: State, config: DynamicConfig) -> Tensor:
    """[B, L] bool: every open position of the block, since all of them compete."""
    return state.masked


def propose(
    state: State, where: Positions, prediction: Prediction, config: DynamicConfig
) -> Proposal:
    """Draw a token for each open position and write those that are certain enough."""
    tokens = draw_tokens(state, where, prediction)
    if state.last:
        return Proposal(tokens, where.take(state.masked))
    scores = rank_scores(state, where, prediction, tokens, config.target)
    least = state.masked.any(1).long() if config.at_least == "one" else quota(state)
    best = most_certain(state, where, scores, least)
    return Proposal(tokens, (best | (scores >= config.threshold)) & where.take(state.masked))


DYNAMIC = Rule(
    candidates, propose, DynamicConfig, check_threshold, ranks=True, score=rank_score, streams=True
)
