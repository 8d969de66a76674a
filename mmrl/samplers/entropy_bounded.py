"""Entropy-bounded: every step writes the surest positions whose entropies add up to less than a
bound, at least one.

The joint entropy of positions written together is at most that sum, so the bound limits what is
lost by drawing them independently (EB-Sampler, arXiv 2505.24857, which leaves the largest out of
the sum; here, as in SDAR's engine, all count). The last step of a block writes all that is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from mmrl.config import Settings, at_least
from mmrl.positions import Positions
from mmrl.samplers.confidence import measure, most_certain, rank_scores
from mmrl.samplers.rule import Prediction, Proposal, Rule, State, draw_tokens

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class EntropyBoundConfig(Settings):
    """Options of the entropy-bounded rule."""

    entropy_bound: Annotated[float, at_least(0)] = 0.35
    """Sum of the entropies, in nats, of what a step writes."""


def candidates(state: State, config: EntropyBoundConfig) -> Tensor:
    """[B, L] bool: every open position of the block, since all of them compete."""
    return state.masked


def propose(
    state: State, where: Positions, prediction: Prediction, config: EntropyBoundConfig
) -> Proposal:
    """Draw a token for each open position and write the surest within the bound."""
    tokens = draw_tokens(state, where, prediction)
    if state.last:
        return Proposal(tokens, where.take(state.masked))
    scores = rank_scores(state, where, prediction, tokens, "neg_entropy")
    entropies = where.spread(-scores, float("inf"))
    sums = entropies.masked_fill(~state.masked, float("inf")).sort(dim=1).values.cumsum(1)
    count = (sums < config.entropy_bound).sum(1).clamp(min=1).minimum(state.masked.sum(1))
    return Proposal(tokens, most_certain(state, where, scores, count))


def score(prediction: Prediction, tokens: Tensor, config: EntropyBoundConfig) -> Tensor:
    """[N] negative entropies."""
    return measure(prediction, tokens, "neg_entropy")


ENTROPY_BOUNDED = Rule(
    candidates, propose, EntropyBoundConfig, ranks=True, score=score, streams=True
)
