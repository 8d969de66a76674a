"""Dream's samplers that rank positions (arXiv 2508.15487): maskgit_plus, topk_margin and entropy.

Time falls linearly from 1 to `eps` over the steps of a block; of the n open positions of a row the
step from t to s writes floor(n (1 - s / t)), the last one all:

    maskgit_plus  those whose drawn token is most probable
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

from mmrl.config import Settings, at_least
from mmrl.positions import Positions
from mmrl.samplers.confidence import most_certain
from mmrl.samplers.rule import Choice, Prediction, Rule, State, filter_logits

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class DreamConfig(Settings):
    """Options of Dream's samplers."""

    eps: Annotated[float, at_least(0, below=1)] = 1e-3
    """Time at which denoising ends."""


def write_counts(state: State, config: DreamConfig) -> Tensor:
    """[B] int64: positions that a step writes in each row."""
    now, then = (1 - (1 - config.eps) * (state.step + n) / state.block.steps for n in (0, 1))
    return (state.masked.sum(1) * (1.0 if state.last else 1 - then / now)).long()


def candidates(state: State, config: DreamConfig) -> Tensor:
    """[B, L] bool: the open positions of rows that this step writes in."""
    return state.masked & (write_counts(state, config) > 0)[:, None]


def write_ranked(state: State, where: Positions, choice: Choice, config: DreamConfig) -> Tensor:
    """[N] bool: the most certain positions."""
    return most_certain(state, where, choice.scores, write_counts(state, config))


def probability(probs: Tensor, columns: Tensor) -> Tensor:
    """[N] probability of the drawn columns."""
    return probs.gather(-1, columns.unsqueeze(-1)).squeeze(-1)


def margin(probs: Tensor, columns: Tensor) -> Tensor:
    """[N] difference of the two largest probabilities."""
    top = probs.topk(2, dim=-1).values
    return top[:, 0] - top[:, 1]


def negative_entropy(probs: Tensor, columns: Tensor) -> Tensor:
    """[N] sum of p log p in nats: 0 where the model is certain."""
    import torch

    return -torch.special.entr(probs).sum(-1)


def _ranked_by(certainty: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def score(prediction: Prediction, columns: Tensor, config: DreamConfig) -> Tensor:
        loop = prediction.config
        if loop.temperature == 0:  # of the distribution that filters leave
            loop = replace(loop, temperature=1.0)
        return certainty(filter_logits(prediction.wide, loop).softmax(-1), columns)

    return Rule(candidates, write_ranked, DreamConfig, score=score, fixed=True)


MASKGIT_PLUS = _ranked_by(probability)
TOPK_MARGIN = _ranked_by(margin)
ENTROPY = _ranked_by(negative_entropy)
