"""The one loss all algorithms share.

    loss = sum_e w_e [ -f_e surrogate(r_e, A) + beta KL_e ]

over the counted entries e of all passes: r_e the ratio at the chosen level, A the advantage of
the rollout (with a value model: of the token), w_e the weight of the chosen aggregation, the
surrogate the chosen one or that of the aggregation or the bound, f_e the factor of the passes, 1
without. A contrast (`mmrl.algorithms.contrasts`) has other terms in their place, and a second
KL, to an averaged policy, may be added. Only actions scored in a pass are counted. The KL is per
scored token, or per response token of the bound's values (`kl_level: bound`), to the reference or
old policy.

The log-prob of a denoising step is the mean over the numbers of its latent, so that its ratio is a
root of the true one and clip ranges are small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.aggregation import AGGREGATIONS, BatchSize
from mmrl.algorithms.algorithm_config import AlgorithmConfig
from mmrl.algorithms.bounds import BOUNDS
from mmrl.algorithms.contrasts import CONTRASTS, Contrasted
from mmrl.algorithms.ratios import KL, RATIO_LEVELS, kl_of_actions
from mmrl.algorithms.surrogates import SURROGATES, Comparison, Terms, boundary
from mmrl.types import Passes, Rollout, Scores

if TYPE_CHECKING:
    from torch import Tensor


def count_batch(
    rollout: Rollout, passes: Passes, config: AlgorithmConfig, left_out: Tensor | None = None
) -> BatchSize:
    """The counts by which the loss of these rollouts is divided: of the whole batch, or of this
    process's part of it, see `BatchSize.over_processes`. `left_out` [B] bool: rows that the update
    leaves out; None for none."""
    counts = BOUNDS[config.bound](passes.weight, passes, config).counts
    return BatchSize(
        rollouts=len(rollout) - (0 if left_out is None else int(left_out.sum())),
        tokens=int(passes.scored.sum()),
        entries=int(counts.sum()),
        longest=config.horizon or int(rollout.canvas.response.sum(1).max()),
        rows=int(counts.any(-1).sum()),
        token_rows=int(passes.scored.any(-1).sum()),
        passes=len(counts),
        token_passes=len(passes),
    )


class Weights(NamedTuple):
    """Weight of every entry of the bound, and of every scored token, in the batch's means."""

    entries: Tensor
    tokens: Tensor


@dataclass
class LossInputs:
    """What the loss of one micro-batch is computed from.

    Attributes:
        passes: K passes over B rows.
        new: scores under the policy, with gradient; an entropy is for the metrics.
        advantages: broadcast to the actions [K, B, N]: of rollouts [1, B, 1], for which [B] may be
            given; of tokens or slices [1, B, N]; and of each pass [K, B, N].
        old: those under the policy that sampled; None where it is the same policy.
        reference: those under the policy the KL is taken to; None without a KL.
        weights: where only some of the passes are at hand, those they have among all of them.
        averaged: those under the old policy of contrasts, an average of the trained one; None where
            it is the same policy.
        slopes: [K, B, 1], coefficients of a loss over groups; None for 1.
        rewards: [n, B], those of n latents finished again, with gradient.
        correction: [K, B, N] or [K, B, 1], weights of the terms of rollouts that another program
            sampled, see `mmrl.algorithms.importance_sampling`; None for 1.
    """

    passes: Passes
    new: Scores
    advantages: Tensor
    old: Scores | None = None
    reference: Scores | None = None
    weights: Weights | None = None
    averaged: Scores | None = None
    slopes: Tensor | None = None
    rewards: Tensor | None = None
    correction: Tensor | None = None

    def __post_init__(self) -> None:
        if self.advantages.dim() == 1:
            self.advantages = self.advantages[None, :, None]


def batch_weights(passes: Passes, config: AlgorithmConfig, size: BatchSize) -> Weights:
    """The weights of all passes of a micro-batch, which no log-prob changes."""
    aggregate = AGGREGATIONS[config.aggregation].weights
    counts = BOUNDS[config.bound](passes.weight, passes, config).counts
    return Weights(aggregate(counts, size), aggregate(passes.scored, size.per_token()))


def policy_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This micro-batch's share of the loss of a batch of this size, a scalar, and sums for the
    metrics: they add up over micro-batches and ranks, each already weighted by its share."""
    weights = inputs.weights or batch_weights(inputs.passes, config, size)
    part = _ratio_loss if config.has_ratio else _contrast_loss
    part = _reward_loss if config.follows_rewards else part
    loss, metrics = part(inputs, config, size, weights)
    metrics = {"policy_loss": loss.detach(), **metrics}
    if inputs.new.entropy is not None:
        metrics["entropy"] = inputs.new.entropy.sum() / max(1, size.tokens)
    if inputs.reference is not None and config.beta > 0:
        divergence, metrics["kl"] = _divergence(inputs, weights, config, size)
        loss = loss + config.beta * divergence
    if config.beta_old > 0:
        averaged = inputs.averaged or inputs.new.detach()
        each = kl_of_actions(config.kl, inputs.new, averaged, inputs.passes.scored)
        metrics["kl_old"] = each.detach().sum() / max(1, size.tokens)
        loss = loss + config.beta_old * (each * weights.tokens).sum()
    return loss, metrics


def _ratio_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize, weights: Weights
) -> tuple[Tensor, dict[str, Tensor]]:
    found, linear = compare(inputs, config)
    terms, log_ratio, counts = _terms(found, linear, config), found.log_ratio, found.counts
    entries = weights.entries
    for factor in (inputs.passes.factor, inputs.slopes, inputs.correction):
        entries = entries if factor is None else entries * factor
    return -(terms.values * entries).sum(), {
        "ratio": _mean(log_ratio.exp(), counts, size),
        "clip_ratio/low_mean": _mean(terms.below, counts, size),
        "clip_ratio/high_mean": _mean(terms.above, counts, size),
        "approx_kl": _mean(KL["k3"](log_ratio, log_ratio.new_zeros(())), counts, size),
    }


def _reward_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize, weights: Weights
) -> tuple[Tensor, dict[str, Tensor]]:
    """-sum over rollouts of share * mean over copies of the reward of the latent that the strategy
    finishes again (`mmrl.generation.flow.last_steps`), decoded, with share that of a rollout in the
    aggregation. A reward is hacked by its gradient sooner than by its values: watch a scorer that
    is not trained, and add a KL."""
    rewards = inputs.rewards
    assert rewards is not None, "the trainer differentiates them"
    # the weights [K, B, N] of a rollout's passes are K / n for each of its n copies
    share = weights.entries.sum(-1).unflatten(0, (len(rewards), -1)).sum(1)
    mean = rewards.detach().mean(0).sum() / max(1, size.rollouts)
    return -(rewards * share.to(rewards)).sum(), {"followed_reward": mean}


def _contrast_loss(
    inputs: LossInputs, config: AlgorithmConfig, size: BatchSize, weights: Weights
) -> tuple[Tensor, dict[str, Tensor]]:
    contrast, new, scored = CONTRASTS[config.contrast], inputs.new, inputs.passes.scored
    old = inputs.averaged or new.detach()
    rows = inputs.advantages
    limit = config.adv_clip_max or 1.0
    assert contrast.terms is not None, "others have a ratio"
    terms = contrast.terms(Contrasted(new, old, rows, config.contrast_beta, limit))
    loss = ((terms if inputs.slopes is None else terms * inputs.slopes) * weights.entries).sum()
    kl = "velocity" if contrast.of_latents else "k2"
    return loss, {"old_deviation": _mean(kl_of_actions(kl, new, old, scored), scored, size)}


def compare(inputs: LossInputs, config: AlgorithmConfig) -> tuple[Comparison, Tensor | None]:
    """The policy and the one that sampled, by the values of the bound; see `Quantity.linear`."""
    passes, rows, bound = inputs.passes, inputs.advantages, BOUNDS[config.bound]
    new = bound(inputs.new.logprobs, passes, config, rows)
    before = inputs.new.detach() if inputs.old is None else inputs.old
    old = bound(before.logprobs, passes, config, rows).values
    level = RATIO_LEVELS[config.ratio_level].log_ratio
    log_ratio = level(new.values, old, new.counts, new.sizes, passes.blocks)
    # 0 elsewhere, so that nothing there can overflow and spoil the gradient
    own, other = (each.masked_fill(~new.counts, 0.0) for each in (new.values, old))
    rows, epsilon = rows.to(log_ratio.dtype), config.clip_range
    steps = inputs.new.gaussian, before.gaussian
    return Comparison(log_ratio, own, other, new.counts, rows, epsilon, *steps), new.linear


def _terms(found: Comparison, linear: Tensor | None, config: AlgorithmConfig) -> Terms:
    log_ratio, rows = found.log_ratio, found.advantages
    if linear is not None:
        return boundary(log_ratio, rows, linear)
    if config.delta is not None:
        log_ratio = log_ratio.where(rows >= 0, log_ratio.clamp(max=math.log(config.delta)))
    surrogate = AGGREGATIONS[config.aggregation].surrogate or SURROGATES[config.surrogate].terms
    return surrogate(found._replace(log_ratio=log_ratio))


def _divergence(
    inputs: LossInputs, weights: Weights, config: AlgorithmConfig, size: BatchSize
) -> tuple[Tensor, Tensor]:
    """The weighted KL, and its plain mean for the metrics."""
    passes, policy, reference = inputs.passes, inputs.new, inputs.reference
    assert reference is not None
    if config.kl_level == "bound":
        new = BOUNDS[config.bound](policy.logprobs, passes, config, inputs.advantages)
        other = BOUNDS[config.bound](reference.logprobs, passes, config, inputs.advantages).values
        each = KL[config.kl](new.values * new.counts, other * new.counts)
        each = each / (1 if new.sizes is None else new.sizes.clamp(min=1))
        return (each * weights.entries).sum(), _mean(each, new.counts, size)
    each = kl_of_actions(config.kl, policy, reference, passes.scored)
    return (each * weights.tokens).sum(), each.detach().sum() / max(1, size.tokens)


def _mean(values: Tensor, counts: Tensor, size: BatchSize) -> Tensor:
    """Sum over the counted entries, divided by the entries of the whole batch."""
    return (values.detach().float() * counts).sum() / max(1, size.entries)
