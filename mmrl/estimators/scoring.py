"""Log-probabilities of a finished canvas under a policy, with some of its tokens hidden again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mmrl.estimators.position import plackett_luce
from mmrl.samplers.logits import guided_output
from mmrl.types import Canvas, Passes

if TYPE_CHECKING:
    from models import Policy


class Scores(NamedTuple):
    """Of the scored positions of K passes over B rows, [K, B, L] float32 each, 0 elsewhere.

    `logprobs` of the tokens; `entropy` of their distributions, detached; `values` of the states,
    None for a network without a value head.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None


def score(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    cfg_scale: float = 0.0,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Log-probs of the scored tokens and the entropy of their distributions.

    One forward per pass, over the rows it scores. The head runs only over the response vocabulary
    and only at scored positions; where the order of writing is scored too (`passes.order`), at all
    hidden ones, and the position term is part of the log-prob.

    Args:
        policy: whose network is asked, with gradient where the caller enables it.
        canvas: B finished rows.
        passes: K mask draws over them.
        cfg_scale: guidance applied while scoring; 0 scores the conditional model.
        temperature: divides the logits.

    Returns:
        logprobs [K, B, L] float32, 0 where not scored, and entropy of the same shape, detached.
    """
    logprobs, entropy, _ = score_with_values(policy, canvas, passes, cfg_scale, temperature)
    return logprobs, entropy


def score_with_values(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    cfg_scale: float = 0.0,
    temperature: float = 1.0,
) -> Scores:
    """`score`, and from the same forwards the values of a network with a value head."""
    canvas = canvas.encode_images(policy.model)
    logprobs = torch.zeros(passes.scored.shape, device=canvas.tokens.device)
    entropy, states = torch.zeros_like(logprobs), None
    for k in range(len(passes)):
        rows = rows_to_ask(passes.scored[k])
        part, some = (canvas, passes) if rows is None else (canvas[rows], passes[rows])
        found, entropies, values = _score_pass(policy, part, some, k, cfg_scale, temperature)
        index = torch.zeros_like(passes.scored)
        index[k] = passes.scored[k]
        logprobs = logprobs.masked_scatter(index, found)
        entropy[index] = entropies
        if values is not None:
            before = torch.zeros_like(entropy) if states is None else states
            states = before.masked_scatter(index, values)
    return Scores(logprobs, entropy, states)


def rows_to_ask(scored: Tensor) -> Tensor | None:
    """[b] int64: the rows with a scored position [B, L], at least one; None for all of them."""
    rows = scored.any(-1)
    if bool(rows.all()):
        return None
    # a pass that scores nothing keeps a row, so that it has a (zero) gradient on every process
    return rows.nonzero().flatten() if bool(rows.any()) else rows.new_zeros(1).long()


def _score_pass(
    policy: Policy, canvas: Canvas, passes: Passes, k: int, cfg_scale: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probs, entropies and values [N] at the scored positions of pass k, in row-major order."""
    hidden, scored = passes.hidden[k], passes.scored[k]
    asked = scored if passes.order is None else hidden & canvas.response
    logits, values = guided_output(policy, canvas.hide(hidden), asked, cfg_scale)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logp = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    del logits
    position = None
    if passes.order is not None:
        confidence = logp.new_zeros(hidden.shape)
        confidence = confidence.masked_scatter(asked, logp.amax(-1))
        position = plackett_luce(confidence, asked, passes.order, passes.blocks)[scored]
        logp = logp[scored[asked]]
        values = None if values is None else values[scored[asked]]
    target = (canvas.tokens[scored] - canvas.vocab[0]).unsqueeze(-1)
    found = logp.gather(-1, target).squeeze(-1)
    with torch.no_grad():
        entropies = -logp.exp().mul_(logp).nan_to_num_().sum(-1)
    found = found if position is None else found + position
    return found.float(), entropies.float(), values
