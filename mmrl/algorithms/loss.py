"""The one loss all algorithms share.

    loss = sum_e w_e [ -surrogate(r_e, A) + beta KL_e ]

over the counted entries e of all mask draws: r_e the ratio at the chosen level, A the advantage of
the rollout (with a value model: of the token), w_e the weight of the chosen aggregation, the
surrogate PPO's unless the aggregation or the bound brings its own. Only positions hidden in a draw
are counted. The KL is per scored token, or per response token of the bound's values (`kl_level:
bound`), to the reference or old policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.kl import KL
from mmrl.algorithms.ratios import RATIO_LEVELS
from mmrl.algorithms.surrogates import SURROGATES, Terms, boundary, clipped
from mmrl.estimators import BOUNDS, Quantity
from mmrl.types import Passes

if TYPE_CHECKING:
    from mmrl.algorithms import AlgorithmConfig


class Weights(NamedTuple):
    """Weight of every entry of the bound, and of every scored token, in the batch's means."""

    entries: Tensor
    tokens: Tensor


@dataclass
class LossInputs:
    """What the loss of one micro-batch is made of.

    `new`, `old`, `reference`: log-probs [K, B, L] of the same passes (`reference`, to which the KL
    is taken, None when beta is 0); `entropy` [K, B, L]; `advantages` [B], or [K, B, L] from a
    value model. `weights` where only some
    of the passes are at hand: those they have among all of them.
    """

    passes: Passes
    new: Tensor
    old: Tensor
    reference: Tensor | None
    entropy: Tensor
    advantages: Tensor
    weights: Weights | None = None


def batch_weights(passes: Passes, config: AlgorithmConfig, size: BatchSize) -> Weights:
    """The weights of all passes of a micro-batch, which no log-prob changes."""
    aggregate = AGGREGATIONS[config.aggregation]
    counts = BOUNDS[config.bound](passes.weight, passes).counts
    return Weights(aggregate(counts, size), aggregate(passes.scored, size.per_token()))


def policy_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This micro-batch's share of the batch's loss, and sums for the metrics.

    Args:
        inputs: log-probs and advantages.
        config: bound, ratio level, clip range, KL.
        size: counts of the whole batch.

    Returns:
        Scalar loss, and metrics that add up over micro-batches and ranks, each already weighted by
        its share of the batch.
    """
    view = config.view(inputs.advantages)
    new = BOUNDS[config.bound](inputs.new, inputs.passes, view)
    old = BOUNDS[config.bound](inputs.old, inputs.passes, view).values
    counts = new.counts
    weights = inputs.weights or batch_weights(inputs.passes, config, size)
    level = RATIO_LEVELS[config.ratio_level]
    log_ratio = level(new.values, old, counts, new.sizes, inputs.passes.blocks)
    terms = _terms(log_ratio, new, inputs.advantages, config)
    loss = -(terms.values * weights.entries).sum()
    metrics = {
        "policy_loss": loss.detach(),
        "ratio": share(log_ratio.exp(), counts, size),
        "clip_ratio/low_mean": share(terms.below, counts, size),
        "clip_ratio/high_mean": share(terms.above, counts, size),
        "approx_kl": share(KL["k3"](log_ratio, log_ratio.new_zeros(())), counts, size),
        "entropy": inputs.entropy.sum() / max(1, size.tokens),
    }
    if inputs.reference is not None:
        divergence, metrics["kl"] = _divergence(
            inputs, inputs.reference, new, weights, config, size
        )
        loss = loss + config.beta * divergence
    return loss, metrics


def _terms(
    log_ratio: Tensor, quantity: Quantity, advantages: Tensor, config: AlgorithmConfig
) -> Terms:
    rows = (advantages[None, :, None] if advantages.dim() == 1 else advantages).to(log_ratio.dtype)
    if quantity.linear is not None:
        return boundary(log_ratio, rows, quantity.linear)
    surrogate = SURROGATES.get(config.aggregation, clipped)
    return surrogate(log_ratio, quantity.counts, rows, (config.epsilon, config.upper_epsilon))


def _divergence(
    inputs: LossInputs,
    reference: Tensor,
    new: Quantity,
    weights: Weights,
    config: AlgorithmConfig,
    size: BatchSize,
) -> tuple[Tensor, Tensor]:
    """The weighted KL, and its plain mean for the metrics."""
    estimate = KL[config.kl]
    if config.kl_level == "bound":
        view = config.view(inputs.advantages)
        other = BOUNDS[config.bound](reference, inputs.passes, view).values
        each = estimate(new.values * new.counts, other * new.counts)
        each = each / (1 if new.sizes is None else new.sizes.clamp(min=1))
        return (each * weights.entries).sum(), share(each, new.counts, size)
    scored = inputs.passes.scored
    # both 0 elsewhere, so that nothing there can overflow and spoil the gradient
    each = estimate(inputs.new * scored, reference * scored)
    return (each * weights.tokens).sum(), each.detach().sum() / max(1, size.tokens)


def share(values: Tensor, counts: Tensor, size: BatchSize) -> Tensor:
    """Sum over the counted entries, divided by the entries of the whole batch."""
    return (values.detach().float() * counts).sum() / max(1, size.entries)
