"""Dream's samplers (arXiv 2508.15487): origin, maskgit_plus, topk_margin and entropy.

Time falls linearly from 1 to `eps` over the steps of a block; of the n open positions of a row the
step from t to s writes about n (1 - s / t), the last one all.

    origin        each position with probability 1 - s / t
    maskgit_plus  the floor(n (1 - s / t)) whose drawn token is most probable
    topk_margin   those with the largest difference of the two most probable tokens
    entropy       those of least entropy

Confidence is that of the distribution tokens are drawn from, after temperature and filters.
Deviation: the public code has one number of positions for a batch, the mean over its rows; here a
row has its own, so that it does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from mmrl.config import Settings, at_least
from mmrl.positions import Positions
from mmrl.samplers.confidence import TARGETS, most_certain
from mmrl.samplers.noise import gumbel
from mmrl.samplers.rule import (
    Prediction,
    Proposal,
    Rule,
    State,
    draw_tokens,
    filter_logits,
    write_all,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class DreamConfig(Settings):
    """Options of Dream's samplers."""

    eps: Annotated[float, at_least(0, below=1)] = 1e-3
    """Time at which denoising ends."""


@dataclass(kw_only=True)
class RankedDreamConfig(DreamConfig):
    """Options of those that rank positions."""

    alg_temp: Annotated[float, at_least(0)] = 0.0
    """Positions are drawn from the softmax of confidence / alg_temp, without replacement; 0 takes
    the most certain."""


def write_share(state: State, config: DreamConfig) -> float:
    """1 - s / t of this step, 1 in the last."""
    if state.last:
        return 1.0
    now, then = (1 - (1 - config.eps) * (state.step + n) / state.block.steps for n in (0, 1))
    return 1 - then / now


def write_counts(state: State, config: DreamConfig) -> Tensor:
    """[B] int64: positions that a ranking step writes in each row."""
    return (state.masked.sum(1) * write_share(state, config)).long()


def random_candidates(state: State, config: DreamConfig) -> Tensor:
    """[B, L] bool: the open positions that this step writes."""
    return state.masked & (state.uniform("commit") < write_share(state, config))


def ranked_candidates(state: State, config: RankedDreamConfig) -> Tensor:
    """[B, L] bool: the open positions of rows that this step writes in."""
    return state.masked & (write_counts(state, config) > 0)[:, None]


def certainty(prediction: Prediction, tokens: Tensor, target: str) -> Tensor:
    """[N] confidence of the distribution tokens are drawn from; at temperature 0 of the one that
    filters leave."""
    config = prediction.config
    if config.temperature == 0:
        config = replace(config, temperature=1.0)
    probs = filter_logits(prediction.wide, config).softmax(-1)
    return TARGETS[target](probs, tokens)


def propose_ranked(
    state: State, where: Positions, prediction: Prediction, config: RankedDreamConfig, target: str
) -> Proposal:
    """Draw a token for each open position and write the most certain, or a draw among them."""
    tokens = draw_tokens(state, where, prediction)
    scores = prediction.score(partial(certainty, target=target), tokens)
    if config.alg_temp:
        scores = scores / config.alg_temp + gumbel(where.take(state.uniform("rank")))
    return Proposal(tokens, most_certain(state, where, scores, write_counts(state, config)))


def _ranked(target: str) -> Rule:
    def score(prediction: Prediction, tokens: Tensor, config: RankedDreamConfig) -> Tensor:
        return certainty(prediction, tokens, target)

    propose: Callable[..., Proposal] = partial(propose_ranked, target=target)
    return Rule(
        ranked_candidates, propose, RankedDreamConfig, score=score, fixed=True, streams=True
    )


ORIGIN = Rule(random_candidates, write_all, DreamConfig, streams=True)
MASKGIT_PLUS = _ranked("confidence")
TOPK_MARGIN = _ranked("margin")
ENTROPY = _ranked("neg_entropy")
