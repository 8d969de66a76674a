"""Dream's samplers (arXiv 2508.15487): origin, maskgit_plus, topk_margin and entropy.

Time falls linearly from 1 to `eps` over the steps of a block; of the n open positions of a row the
step from t to s writes about n (1 - s / t), the last one all:

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
from typing import TYPE_CHECKING, Annotated

from mmrl.config import at_least
from mmrl.generation.masked.samplers.confidence import margin, negative_entropy, probability, ranked
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import Prediction, Rule, State, filter_logits, write_all

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class DreamConfig(LoopConfig):
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


def _ranked_by(certainty: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def score(prediction: Prediction, columns: Tensor) -> Tensor:
        loop = prediction.config
        if loop.temperature == 0:  # of the distribution that filters leave
            loop = replace(loop, temperature=1.0)
        return certainty(filter_logits(prediction.wide, loop).softmax(-1), columns)

    return ranked(
        write_counts, score, RankedDreamConfig, lambda state, config: config.alg_temp, fixed=True
    )


ORIGIN = Rule(random_candidates, write_all, DreamConfig)
MASKGIT_PLUS = _ranked_by(probability)
TOPK_MARGIN = _ranked_by(margin)
ENTROPY = _ranked_by(negative_entropy)
