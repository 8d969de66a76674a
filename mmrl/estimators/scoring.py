"""Log-probabilities of a finished canvas under a policy, with some of its tokens hidden again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.estimators.chunked_logprobs import ChosenLogProbs, LogProbReduction
from mmrl.estimators.packing import hide_tokens
from mmrl.positions import Positions
from mmrl.runtime.logits_budget import rows_scored_at_once, wide_dtype
from mmrl.runtime.precision import keep_casts
from mmrl.samplers.guidance import Guidance
from mmrl.samplers.logits import guided_output, network_inputs
from mmrl.types import Canvas, Passes

if TYPE_CHECKING:
    from mmrl.models import Policy


class TokenScores(NamedTuple):
    """Of the scored positions of K passes over B rows, [K, B, L] float32 each, 0 elsewhere.

    `logprobs` of the tokens; `entropy` of their distributions, detached.
    """

    logprobs: Tensor
    entropy: Tensor


def score(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    cfg_scale: float = 0.0,
    temperature: float = 1.0,
    image_guidance_scale: float = 0.0,
) -> TokenScores:
    """Log-probs of the scored tokens, and the entropy of their distributions.

    One forward per pass, over the rows it scores. The head runs only over the response vocabulary
    and only at scored positions.

    Args:
        policy: with gradient where the caller enables it.
        canvas: B finished rows.
        passes: K mask draws over them.
        cfg_scale: guidance applied while scoring; 0 scores the conditional model.
        temperature: divides the logits.
        image_guidance_scale: guidance by the source image.
    """
    guidance = Guidance(cfg_scale, image_guidance_scale)
    canvas, dropped = canvas.encode_images(policy.model).trim()
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
    return TokenScores(_stack(logprobs, dropped), _stack(entropy, dropped))


def _stack(parts: Sequence[Tensor], dropped: int) -> Tensor:
    """[K, B, L] from [B, L'], with zeros in the columns that were dropped."""
    return F.pad(torch.stack(list(parts)), (dropped, 0))


def select_scored(
    canvas: Canvas, passes: Passes, where: Positions
) -> tuple[Canvas, Passes, Positions]:
    """Canvas, passes and positions of the rows with a scored position, at least one row: a pass
    that scores nothing has a (zero) gradient too, on every process."""
    rows = where.rows
    if rows is None:
        return canvas, passes, where
    rows = rows if len(rows) else rows.new_zeros(1)
    return canvas[rows], passes[rows], where.keep_rows(rows)


def _score_pass(
    policy: Policy,
    canvas: Canvas,
    passes: Passes,
    k: int,
    scored: Positions,
    guidance: Guidance,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [N] at the scored positions of pass k, in row-major order."""
    masked, asked = hide_tokens(canvas, passes.hidden[k], scored.mask)
    columns = canvas.vocab[1] - canvas.vocab[0]
    targets = scored.take(canvas.tokens) - canvas.vocab[0]
    at_once = rows_scored_at_once(columns, device=targets.device)
    if policy.network.can_reduce and len(targets) > at_once:
        reduction = LogProbReduction(
            targets, guidance.factors, temperature, canvas.forbidden_columns
        )
        chosen = guided_output(policy, masked, asked, guidance, reduce=reduction)
    else:
        logits = guided_output(policy, masked, asked, guidance)
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


def predict_values(model: Callable[..., Tensor], canvas: Canvas, passes: Passes) -> Tensor:
    """Values of the states in which each pass begins, at its scored positions.

    One forward per pass, over the rows it scores, of the conditional canvas: guidance concerns
    which token is written, not what the state is worth.

    Args:
        model: `mmrl.models.network.value_head.ValueNetwork`, possibly wrapped.
        canvas: B finished rows.
        passes: K mask draws over them.

    Returns:
        [K, B, L] float32, 0 where not scored.
    """
    values = []
    canvas, dropped = canvas.trim()
    passes = passes.drop_columns(dropped)
    for k in range(len(passes)):
        where = Positions.find(passes.scored[k])
        part, some, inside = select_scored(canvas, passes, where)
        masked, positions = hide_tokens(part, some.hidden[k], inside.mask)
        found = model(positions=positions, **network_inputs([masked]))
        values.append(where.spread(found, 0.0))
    return _stack(values, dropped)


def highest_entropy(entropy: Tensor, scored: Tensor, share: float) -> Tensor:
    """The scored tokens of each rollout with the highest entropy over all its passes.

    JustGRPO-Fast (arXiv 2601.15165) forms its ratios at the quarter of a completion's positions
    with the highest entropy, which it records while it samples; TRL's `top_entropy_quantile` (arXiv
    2506.01939) masks the policy loss of the other tokens. Here one more forward of all passes
    measures the entropies before the policy moves, and the other tokens are not scored at all.
    Deviations from TRL: the threshold belongs to each rollout and not to a batch, so that what is
    kept of a rollout depends on nothing else but rounding; means are over the tokens that are kept,
    and so is the KL.

    Args:
        entropy: [K, B, L] float32, of the distributions of the scored tokens.
        scored: [K, B, L] bool.
        share: of a rollout's scored tokens, above 0; what is kept is rounded up. Of equal ones the
            first pass and position wins.

    Returns:
        [K, B, L] bool, a subset of `scored`.
    """
    passes, rows, length = scored.shape
    # a product such as 0.1 x 10 must not be pushed over the next integer by rounding
    number = (share * scored.sum((0, 2)).double() - 1e-9).ceil()
    each = entropy.masked_fill(~scored, -torch.inf).transpose(0, 1).reshape(rows, -1)
    rank = each.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    kept = (rank < number[:, None]).view(rows, passes, length).transpose(0, 1)
    return kept & scored
