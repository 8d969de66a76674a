"""Rules of an even share or of certainty: static, dynamic and left_to_right; how both are found.

    static         in every step an even share of the block, the most certain positions first:
                   LLaDA's sampler (arXiv 2502.09992)
    dynamic        all positions at least as certain as a threshold, and at least one: Fast-dLLM
                   (arXiv 2505.22618); with `at_least: quota` SDAR's, never slower than static
    left_to_right  an even share, the first open positions first, known before the forward; with as
                   many steps as positions autoregressive decoding by a bidirectional model

The last step of a block writes all that is open, so with fewer steps than positions no mask
remains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mmrl.config import at_least as not_below
from mmrl.generation.masked.samplers.loop_config import LoopConfig
from mmrl.generation.masked.samplers.rule import (
    Choice,
    Prediction,
    Rule,
    State,
    all_open,
    write_all,
)
from mmrl.generation.tokens.noise import gumbel

if TYPE_CHECKING:
    from torch import Tensor

    from mmrl.generation.tokens.positions import Positions


@dataclass(kw_only=True)
class RankConfig(LoopConfig):
    """Options of rules that rank positions."""

    filtered_confidence: bool = False
    """Whether confidence is of the distribution after temperature, top-k and top-p, as in SDAR's
    sampler, rather than of the model's own."""


@dataclass(kw_only=True)
class StaticConfig(RankConfig):
    """Options of the static rule."""

    target: Literal["confidence", "margin", "neg_entropy", "random"] = "confidence"
    """What ranks positions, highest first: the probability of the drawn token, the difference of
    the two largest, the negative entropy in nats, or chance."""


@dataclass(kw_only=True)
class ThresholdConfig(RankConfig):
    """Options of rules that write what is certain."""

    threshold: Annotated[float, not_below(0, up_to=1)] = 0.9
    """Positions with at least this probability are written."""


@dataclass(kw_only=True)
class DynamicConfig(ThresholdConfig):
    """Options of the dynamic rule."""

    at_least: Literal["one", "quota"] = "one"
    """Positions that a step writes where fewer are certain: one, or its even share."""


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


TARGETS = {"margin": margin, "neg_entropy": negative_entropy}
"""Certainty by the model's own probabilities [N, C] and the columns [N] that were drawn."""


def measure(prediction: Prediction, columns: Tensor) -> Tensor:
    """[N] certainty of the columns [N] that were drawn, by default their probability, and 0 for all
    where chance ranks them; with `eos: last` an end comes last."""
    target = getattr(prediction.config, "target", "confidence")
    if certainty := TARGETS.get(target):
        scores = certainty(prediction.confidence, columns)
    else:
        scores = prediction.own_probability(columns) * (target != "random")
    if prediction.config.eos == "last":
        for stop in prediction.stops:
            scores = scores.masked_fill(columns == stop, -float("inf"))
    return scores


def by_chance(state: State, config: StaticConfig) -> float:
    """The scale of the noise on `measure`: 1 where chance ranks positions."""
    return float(config.target == "random")


def most_certain(state: State, where: Positions, scores: Tensor, count: Tensor) -> Tensor:
    """[N] bool: the `count` [B] open positions of each row with the highest scores [N]; of equal
    ones the leftmost."""
    import torch

    full = where.spread(scores.clamp(min=torch.finfo(scores.dtype).min), -torch.inf)
    full = full.masked_fill(~state.masked, -torch.inf)
    order = full.argsort(dim=1, descending=True, stable=True)
    rank = torch.arange(full.shape[1], device=full.device)
    chosen = torch.zeros_like(where.where).scatter_(1, order, rank < count[:, None])
    return where.take(chosen & state.masked)


def quota(state: State, config: LoopConfig) -> Tensor:
    """[B] int64: positions that a step of an even plan writes in each row.

    Of the n positions open when the block began each step writes n // S, the first n % S one more;
    n is the size of the block where that is given.
    """
    count, steps = state.opened.sum(1), state.block.steps
    if state.block.size is not None:
        count = count.clamp(max=0) + state.block.size
    return count // steps + (state.step < count % steps)


def ranked(
    count: Callable[[State, Any], Tensor],
    score: Callable[[Prediction, Tensor], Tensor],
    config: type[LoopConfig],
    scale: Callable[[State, Any], float] | None = None,
    **row: Any,
) -> Rule:
    """The row of a rule that ranks the open positions of each row and writes the first of them.

    `count(state, config)`: how many a step writes in each row, [B] int64. `score`: what ranks them,
    see `Rule`. `scale(state, config)`: of the Gumbel noise that is added to the scores; None adds
    none. `row`: the rest of `Rule`."""

    def candidates(state: State, config: Any) -> Tensor:
        return state.masked & (count(state, config) > 0)[:, None]

    def write(state: State, where: Positions, choice: Choice, config: Any) -> Tensor:
        scores = choice.scores
        if scale is not None and (factor := scale(state, config)):
            scores = scores + factor * gumbel(where.take(state.uniform("gumbel")))
        return most_certain(state, where, scores, count(state, config))

    return Rule(candidates, write, config, score, **row)


def write_certain(state: State, where: Positions, choice: Choice, config: DynamicConfig) -> Tensor:
    """[N] bool: the positions that are certain enough."""
    if state.last:
        return where.take(state.masked)
    least = state.masked.any(1).long() if config.at_least == "one" else quota(state, config)
    best = most_certain(state, where, choice.scores, least)
    return (best | (choice.scores >= config.threshold)) & where.take(state.masked)


def next_in_order(state: State, config: LoopConfig) -> Tensor:
    """[B, L] bool: the first open positions of each row, as many as its share."""
    return state.masked & (state.masked.cumsum(1) <= quota(state, config)[:, None])


STATIC = ranked(quota, measure, StaticConfig, by_chance, ranks=True, fixed=True)
DYNAMIC = Rule(all_open, write_certain, DynamicConfig, score=measure, ranks=True)
LEFT_TO_RIGHT = Rule(next_in_order, write_all, fixed=True)
