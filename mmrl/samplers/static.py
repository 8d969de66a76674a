"""Static: every step writes its even share of a block, the most certain positions first.

LLaDA's low-confidence sampler (arXiv 2502.09992): a token is drawn at every open position, and
those of highest confidence are written. Confidence comes from the unmodified distribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmrl.positions import Positions
from mmrl.samplers.confidence import RankConfig, most_certain, quota, rank_score, rank_scores
from mmrl.samplers.rule import Prediction, Proposal, Rule, State, draw_tokens

if TYPE_CHECKING:
    from torch import Tensor


def candidates(state: State, config: RankConfig) -> Tensor:
    """[B, L] bool: the open positions of rows that this step writes in; all of them compete."""
    return state.masked & (quota(state) > 0)[:, None]


def propose(state: State, where: Positions, prediction: Prediction, config: RankConfig) -> Proposal:
    """Draw a token for each open position and write the most certain."""
    tokens = draw_tokens(state, where, prediction)
    scores = rank_scores(state, where, prediction, tokens, config.target)
    return Proposal(tokens, most_certain(state, where, scores, quota(state)))


STATIC = Rule(
    candidates, propose, RankConfig, ranks=True, score=rank_score, fixed=True, streams=True
)
