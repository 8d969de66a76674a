"""How certain the model is of a position, and which positions that ranks first."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mmrl.samplers.prediction import Prediction
from mmrl.samplers.state import State
from mmrl.samplers.tokens import uniforms


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
    return -torch.special.entr(probs).sum(-1)


TARGETS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": probability,
    "margin": margin,
    "neg_entropy": negative_entropy,
}


def score(state: State, where: Tensor, prediction: Prediction, tokens: Tensor) -> Tensor:
    """[N] certainty of the N True entries of `where`, higher = more certain.

    Args:
        state: of the step.
        where: positions.
        prediction: at them.
        tokens: [N] columns proposed there.
    """
    settings = prediction.settings
    if settings.target == "random" and state.reference is not None:
        return uniforms(state, where, torch.float32).to(where.device)
    if settings.target == "random":
        return state.uniform("rank")[where]
    dtype = torch.promote_types(prediction.logits.dtype, torch.float32)
    if state.reference is not None:
        dtype = getattr(torch, settings.reference_dtype)
    scores = TARGETS[settings.target](prediction.certain(dtype), tokens)
    if settings.eos == "last":
        ends = torch.isin(tokens, torch.tensor(prediction.stops, device=tokens.device))
        scores = scores.masked_fill(ends, -torch.inf)
    return scores


def most_certain(state: State, where: Tensor, scores: Tensor, count: Tensor) -> Tensor:
    """[N] bool: the `count` [B] open positions of each row with the highest scores [N].

    Ties go to the left; with `rng: reference` they go where `topk` puts them.
    """
    full = torch.full(where.shape, -torch.inf, dtype=scores.dtype, device=where.device)
    full[where] = scores.clamp(min=torch.finfo(scores.dtype).min)
    full = full.masked_fill(~state.masked, -torch.inf)
    chosen = torch.zeros_like(where)
    if state.reference is None:
        order = full.argsort(dim=1, descending=True, stable=True)
        place = torch.arange(full.shape[1], device=full.device)
        chosen.scatter_(1, order, place < count[:, None])
    else:
        for row, number in enumerate(count.tolist()):
            chosen[row, full[row].topk(number).indices] = True
    return (chosen & state.masked)[where]


def quota(state: State) -> Tensor:
    """[B] int64: positions that a step of an even plan writes in each row.

    Of the n positions open when the block began each step writes n // S, the first n % S one more.
    """
    assert state.opened is not None
    count = state.opened.sum(1)
    return count // state.steps + (state.step < count % state.steps)
