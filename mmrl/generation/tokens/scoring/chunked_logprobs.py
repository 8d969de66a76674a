"""Log-probs of tokens from final states, for some rows of logits at a time.

    log p = z_t - logsumexp(z)        z = sum_s c_s W x_s / T, x_s: branches of guidance
    d log p / d x_s = c_s (W_t - sum_j p_j W_j) / T

Where the output matrix is frozen the bracket is all that the backward pass needs, so it is computed
together with the log-prob and logits are computed once, as without chunks. Where it is trained
they are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmrl.runtime.logits_budget import rows_scored_at_once, wide_dtype

if TYPE_CHECKING:
    from mmrl.models.network.token_network import OutputHead


class ChosenLogProbs(NamedTuple):
    """Of N rows, float32 at least: log-probs of the targets, and the entropy of the distributions,
    detached."""

    target: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class LogProbReduction:
    """What is computed from the logits of N rows; see `Network.forward`.

    Attributes:
        targets: [N] int64 columns.
        scales: factor c of each branch; states have the N rows of one after the other.
        temperature: divides the logits.
        forbidden_columns: columns that have no probability.
    """

    targets: Tensor
    scales: tuple[float, ...] = (1.0,)
    temperature: float = 1.0
    forbidden_columns: Sequence[int] = ()

    def __call__(self, x: Tensor, head: OutputHead) -> ChosenLogProbs:
        """From final states [S N, D]; no tensor of logits is above the budget.

        Differentiable once, with respect to the states and the head.
        """
        x, head = head.cast(x)
        gradient = torch.is_grad_enabled()
        frozen = gradient and x.requires_grad and not head.weight.requires_grad
        with torch.autocast(x.device.type, enabled=False):
            found = _ChunkedLogProbs.apply(x, head.weight, head.bias, self, frozen)
        return ChosenLogProbs(*found)  # type: ignore[misc]

    def log_softmax(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Log-probs [n, C] from the branches [S, n, D]."""
        logits = torch.zeros(())
        for n, scale in enumerate(self.scales):
            part = F.linear(x[n], weight, bias)
            part = part.to(wide_dtype(part.dtype))
            part = part if scale == 1 else part.mul_(scale)
            logits = part if n == 0 else logits.add_(part)
        for column in self.forbidden_columns:
            logits[:, column] = -torch.inf
        if self.temperature != 1:
            logits = logits.div_(self.temperature)
        return logits.sub_(logits.logsumexp(-1, keepdim=True))

    def spread(self, slope: Tensor, dtype: torch.dtype) -> Tensor:
        """The gradient [S, n, D] of all branches from that of z / T."""
        slope = slope / self.temperature
        return torch.stack([(scale * slope).to(dtype) for scale in self.scales])


class _ChunkedLogProbs(torch.autograd.Function):
    """`frozen`: the head has no gradient, and that of the states is found on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        what: LogProbReduction,
        frozen: bool,
    ) -> tuple[Tensor, ...]:
        chunks = _chunks(x, what, weight)
        parts = [_score_rows(rows, own, weight, bias, what, frozen) for rows, own in chunks]
        found, entropy, *slope = (torch.cat(each) for each in zip(*parts, strict=True))
        ctx.what, ctx.frozen, ctx.dtype = what, frozen, x.dtype
        ctx.save_for_backward(*(slope if frozen else (x, weight, bias)))
        ctx.mark_non_differentiable(entropy)
        return found, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        found = gradients[0][:, None]
        if ctx.frozen:
            [slope] = ctx.saved_tensors
            step = ctx.what.spread(found * slope, ctx.dtype)
            return step.flatten(0, 1), None, None, None, None
        x, weight, bias = ctx.saved_tensors
        return (*_recompute(x, weight, bias, found, ctx), None, None)


def _chunks(
    x: Tensor, what: LogProbReduction, weight: Tensor, *others: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Branches [S, n, D], targets [n] and parts of other tensors [N, …] of some rows at a time."""
    size = rows_scored_at_once(len(weight), x.dtype, x.device)
    branches = x.view(len(what.scales), -1, x.shape[-1]).split(size, 1)
    return zip(branches, *(each.split(size) for each in (what.targets, *others)), strict=True)


def _score_rows(
    x: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    what: LogProbReduction,
    frozen: bool,
) -> tuple[Tensor, ...]:
    """The two of `ChosenLogProbs`; where the head is `frozen` also the gradient [n, D] of the first
    with respect to what the head reads."""
    logp = what.log_softmax(x, weight, bias)
    found = logp.gather(-1, targets[:, None])[:, 0]
    if not frozen:
        return found, -logp.exp().mul_(logp).nan_to_num_().sum(-1)
    probs = logp.exp()
    entropy = -logp.mul_(probs).nan_to_num_().sum(-1)
    del logp
    probs.neg_().scatter_add_(-1, targets[:, None], torch.ones_like(found)[:, None])
    return found, entropy, (probs.to(weight.dtype) @ weight).to(probs.dtype)


def _recompute(
    x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, ctx: Any
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of states, weight and bias, from logits that are computed again."""
    what: LogProbReduction = ctx.what
    wide = wide_dtype(x.dtype)
    of_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device)
    of_bias = None if bias is None else torch.zeros(bias.shape, dtype=wide, device=bias.device)
    steps = []
    for rows, targets, found in _chunks(x, what, weight, gradient):
        step = what.log_softmax(rows, weight, bias).exp_().mul_(-found)
        step.scatter_add_(-1, targets[:, None], found)
        low = step.to(weight.dtype)
        steps.append(what.spread(low @ weight, ctx.dtype))
        for scale, branch in zip(what.scales, rows, strict=True):
            part = scale / what.temperature
            if low.dtype == wide:
                of_weight.addmm_(low.T, branch, alpha=part)
            else:
                of_weight.add_((low.T @ branch).to(wide), alpha=part)
            if of_bias is not None:
                of_bias.add_(step.sum(0), alpha=part)
    of_x = torch.cat(steps, 1).flatten(0, 1)
    if bias is not None and of_bias is not None:
        of_bias = of_bias.to(bias.dtype)
    return of_x, of_weight.to(weight.dtype), of_bias
