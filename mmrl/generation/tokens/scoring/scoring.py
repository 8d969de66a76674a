"""Log-probabilities of a finished canvas under a policy, for some passes over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.generation.tokens.positions import Positions
from mmrl.generation.tokens.scoring.chunked_logprobs import ChosenLogProbs, LogProbReduction
from mmrl.generation.tokens.scoring.logits import guided_output, network_inputs
from mmrl.runtime.logits_budget import rows_scored_at_once, wide_dtype
from mmrl.runtime.precision import keep_casts
from mmrl.types import Passes, Scores
from mmrl.types.guidance import Guidance

if TYPE_CHECKING:
    from mmrl.models import Policy


def score(
    policy: Policy, canvas: TokenCanvas, passes: Passes, guidance: Guidance, temperature: float
) -> Scores:
    """Log-probs of the scored tokens, and the entropy of their distributions.

    One forward per pass, over the rows it scores. The head runs only over the response vocabulary
    and only at scored positions. Arguments as of `mmrl.estimators.score`.
    """
    canvas, dropped = canvas.encode(policy.model).trim()
    passes = passes.drop_columns(dropped)
    whole = torch.is_grad_enabled() or policy.shares_forwards
    parts = []
    with nullcontext() if whole else keep_casts(canvas.tokens.device):
        for k in range(len(passes)):
            where = Positions.find(passes.scored[k])
            part, some, inside = select_scored(canvas, passes, where)
            found = _score_pass(policy, part, some, k, inside, guidance, temperature)
            parts.append([where.spread(each, 0.0) for each in found])
    logprobs, entropy = zip(*parts, strict=True)
    return Scores(_stack(logprobs, dropped), _stack(entropy, dropped))


def _stack(parts: Sequence[Tensor], dropped: int) -> Tensor:
    """[K, B, L] from [B, L'], with zeros in the columns that were dropped."""
    return F.pad(torch.stack(list(parts)), (dropped, 0))


def select_scored(
    canvas: TokenCanvas, passes: Passes, where: Positions
) -> tuple[TokenCanvas, Passes, Positions]:
    """Canvas, passes and positions of the rows with a scored position, at least one row: a pass
    that scores nothing has a (zero) gradient too, on every process."""
    rows = where.rows
    if rows is None:
        return canvas, passes, where
    rows = rows if len(rows) else rows.new_zeros(1)
    return canvas[rows], passes[rows], where.keep_rows(rows)


def _score_pass(
    policy: Policy,
    canvas: TokenCanvas,
    passes: Passes,
    k: int,
    scored: Positions,
    guidance: Guidance,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [N] at the scored positions of pass k, in row-major order."""
    shown, asked = passes.query.show(canvas, k, scored.where)
    columns = canvas.columns[1] - canvas.columns[0]
    targets = scored.take(canvas.tokens) - canvas.columns[0]
    at_once = rows_scored_at_once(columns, device=targets.device)
    if policy.network.can_reduce and len(targets) > at_once:
        reduction = LogProbReduction(
            targets, guidance.factors, temperature, canvas.forbidden_columns
        )
        chosen = guided_output(policy, shown, asked, guidance, reduce=reduction)
    else:
        logits = guided_output(policy, shown, asked, guidance)
        chosen = choose_logprobs(logits, targets, temperature)
    return chosen.target.float(), chosen.entropy.float()


def choose_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> ChosenLogProbs:
    """The numbers of `LogProbReduction` from logits [N, C]."""
    logits = logits.to(wide_dtype(logits.dtype))
    logp = (logits if temperature == 1 else logits / temperature).log_softmax(-1)
    del logits
    found = logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropies = -logp.exp().mul_(logp).nan_to_num_().sum(-1)
    return ChosenLogProbs(found, entropies)


def predict_values(model: Callable[..., Tensor], canvas: TokenCanvas, passes: Passes) -> Tensor:
    """[K, B, L] float32, values of the states in which each of K passes over B finished rows
    begins, at its scored positions, 0 elsewhere.

    One forward per pass, over the rows it scores, of the conditional canvas: guidance concerns
    which token is written, not what the state is worth. The model is a
    `mmrl.models.network.value_head.ValueNetwork`, possibly wrapped."""
    values = []
    canvas, dropped = canvas.trim()
    passes = passes.drop_columns(dropped)
    for k in range(len(passes)):
        where = Positions.find(passes.scored[k])
        part, some, inside = select_scored(canvas, passes, where)
        shown, positions = some.query.show(part, k, inside.where)
        found = model(positions=positions, **network_inputs([shown]))
        values.append(where.spread(found, 0.0))
    return _stack(values, dropped)
