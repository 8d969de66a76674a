"""How confident the model is of a position, and which positions that ranks first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from mmrl.config import Settings
from mmrl.positions import Positions
from mmrl.samplers.rule import Drawn, Prediction, State

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class RankConfig(Settings):
    """Options of rules that rank positions."""

    target: Literal["confidence", "margin", "neg_entropy", "random"] = "confidence"
    """What ranks positions, highest first: the probability of the drawn token, the difference of
    the two largest, the negative entropy in nats, or chance."""
    filtered_confidence: bool = False
    """Whether that is of the distribution after temperature, top-k and top-p, as in SDAR's sampler,
    rather than of the model's own."""


def probability(probs: Tensor, tokens: Tensor) -> Tensor:
    """Probability [N] of the proposed token."""
    return probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def margin(probs: Tensor, tokens: Tensor) -> Tensor:
    """Difference [N] of the two largest probabilities."""
    top = probs.topk(2, dim=-1).values
    return top[:, 0] - top[:, 1]


def negative_entropy(probs: Tensor, tokens: Tensor) -> Tensor:
    """Sum of p log p [N], in nats: 0 where the model is certain.

    One public sampler has the sign reversed and writes the least certain positions first.
    """
    import torch

    return -torch.special.entr(probs).sum(-1)


TARGETS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": probability,
    "margin": margin,
    "neg_entropy": negative_entropy,
}


def rank_scores(
    state: State, where: Positions, prediction: Prediction | Drawn, tokens: Tensor, target: str
) -> Tensor:
    """[N] confidence at the N positions `where`, higher = more certain.

    Args:
        state: of the step.
        where: positions.
        prediction: at them.
        tokens: [N] columns proposed there.
        target: see `RankConfig`.
    """
    if target == "random":
        return where.take(state.uniform("rank"))
    return prediction.score(partial(measure, target=target), tokens)


def measure(prediction: Prediction, tokens: Tensor, target: str) -> Tensor:
    """[N] confidence in the tokens [N] drawn from a prediction; see `RankConfig`."""
    if target == "confidence":
        scores = prediction.own_probability(tokens)
    else:
        scores = TARGETS[target](prediction.confidence, tokens)
    if prediction.config.eos == "last":
        for stop in prediction.stops:
            scores = scores.masked_fill(tokens == stop, -float("inf"))
    return scores


def rank_score(prediction: Prediction, tokens: Tensor, config: RankConfig) -> Tensor:
    """`Rule.score` of rules that rank by `RankConfig.target`; chance needs no prediction."""
    if config.target == "random":
        return tokens.float()
    return measure(prediction, tokens, config.target)


def most_certain(state: State, where: Positions, scores: Tensor, count: Tensor) -> Tensor:
    """[N] bool: the `count` [B] open positions of each row with the highest scores [N]; of equal
    ones the leftmost."""
    import torch

    full = where.spread(scores.clamp(min=torch.finfo(scores.dtype).min), -torch.inf)
    full = full.masked_fill(~state.masked, -torch.inf)
    order = full.argsort(dim=1, descending=True, stable=True)
    place = torch.arange(full.shape[1], device=full.device)
    chosen = torch.zeros_like(where.mask).scatter_(1, order, place < count[:, None])
    return where.take(chosen & state.masked)


def quota(state: State) -> Tensor:
    """[B] int64: positions that a step of an even plan writes in each row.

    Of the n positions open when the block began each step writes n // S, the first n % S one more;
    n is the size of the block where that is given.
    """
    count, steps = state.opened.sum(1), state.block.steps
    if state.block.size is not None:
        count = count.clamp(max=0) + state.block.size
    return count // steps + (state.step < count % steps)
