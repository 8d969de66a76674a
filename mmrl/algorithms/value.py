"""Returns, advantages and the loss of a value model, step by step (TraceRL, arXiv 2509.06949).

TraceRL's form of generalised advantage estimation (GAE, arXiv 1506.02438). Step i of a rollout
writes the tokens J_i, scored in pass i; r_j is the reward of token j, V_j the value that was
predicted at its position when step i began. With means over the tokens of a step marked by a star,

    Ret_j = r_j + gamma Ret*_(i+1)
    A_j   = r_j - V_j + gamma V*_(i+1) + gamma lambda A*_(i+1)

and everything behind the last step 0. The baseline belongs to a token, the bootstrap to a step:
how many tokens a step writes does not change how far reward is carried; where each step writes one,
this is GAE over tokens, as PPO has it. With gamma = lambda = 1 and
a reward for the outcome R, Ret_j = R and A_j = R - V_j; with lambda = 0 only the next step counts.

A reward at a position is for the row up to there. It is paid in the step that writes the last token
of that part, to all tokens of the step: all that was judged is written by then. So a return is the
sum of what is paid from its step on. The public code reads a vector of rewards by position as one
by step (MMaDA, LLaDA-V), or takes the mean over a step's tokens (SDAR), which loses the share of
tokens of other chunks.

The value loss is PPO's clipped one (arXiv 1707.06347, as in its public code), per scored token,
averaged as the terms of the policy are:

    loss_j = 1/2 max( (V_j - Ret_j)^2, (clip(V_j, V_j^old +- epsilon) - Ret_j)^2 )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.algorithm_config import ValueConfig

if TYPE_CHECKING:
    from torch import Tensor


class Estimates(NamedTuple):
    """`returns` and `advantages` [K, B, L] of every scored token, 0 elsewhere."""

    returns: Tensor
    advantages: Tensor


def compute_advantages(
    values: Tensor,
    rewards: Tensor,
    scored: Tensor,
    config: ValueConfig,
    steps: Tensor | None = None,
) -> Estimates:
    """Returns and advantages of the tokens of finished rollouts.

    Args:
        values: [K, B, L], predicted by the value model as it was when the policy sampled.
        rewards: [B, L] what was earned up to a position, as advantages among the group; for the
            outcome that is the last one. NaN in a row where no reward applies: such a rollout
            is left out.
        scored: [K, B, L] bool, one pass per slice of the trace.
        config: discounts.
        steps: [B, L] int64, ordered as the steps, where a pass scores slices of several blocks
            that were written one after the other; None where each pass is a step.
    """
    counted = scored & ~rewards.isnan().any(-1)[None, :, None]
    if steps is not None and (order := _order_tokens(counted.any(0), steps)) is not None:
        known = (values * counted).sum(0), rewards.nan_to_num(), counted.any(0)
        estimates = _estimate_in_order(*known, order, config)
        return Estimates(*(each * counted for each in estimates))
    by_step = counted if steps is None else split_steps(counted, steps)
    if steps is not None:
        values = (values * counted).sum(0) * by_step
    paid = token_rewards(rewards.nan_to_num(), by_step)
    estimates = estimate_gae(paid, values, by_step, config.gamma, config.lam)
    if steps is None:
        return estimates
    return Estimates(*(each.sum(0) * counted for each in estimates))


def _order_tokens(scored: Tensor, steps: Tensor) -> Tensor | None:
    """[B, S] int64: the positions of each row, those scored first and by step, as many as the row
    with most has; None where a step of a row has several."""
    keys, order = steps.where(scored, steps.amax() + 1).sort(dim=1, stable=True)
    number = scored.sum(1)
    inside = scored.new_ones(keys.shape).cumsum(1)[:, :-1] < number[:, None]
    if bool(((keys[:, 1:] == keys[:, :-1]) & inside).any()):
        return None
    return order[:, : max(1, int(number.max()))]


def _estimate_in_order(
    values: Tensor, rewards: Tensor, scored: Tensor, order: Tensor, config: ValueConfig
) -> Estimates:
    """Estimates [B, L] where the scored tokens of a row are steps, in an order [B, S]: without a
    tensor of all steps by all positions, which a long text makes large."""
    ranks = order.new_ones(order.shape).cumsum(1)
    rank = order.new_zeros(scored.shape).scatter(1, order, ranks) * scored
    paid = rewards.new_zeros(len(rank), order.shape[1] + 1)
    paid.scatter_add_(1, rank.cummax(1).values, rewards)
    rows = paid[:, 1:], values.gather(1, order), scored.gather(1, order)
    earned, predicted, counted = (each.T[..., None] for each in rows)
    found = estimate_gae(earned, predicted, counted, config.gamma, config.lam)
    empty = values.new_zeros(values.shape)
    return Estimates(*(empty.scatter(1, order, each[..., 0].T) for each in found))


def split_steps(scored: Tensor, steps: Tensor) -> Tensor:
    """[S, B, L] bool: the scored tokens of each step, of passes [K, B, L] that score each token at
    most once, by `steps` [B, L]."""
    tokens = scored.any(0)
    ranks = steps.new_full(steps.shape, -1)
    for row, own in enumerate(tokens):
        ranks[row, own] = steps[row, own].unique(return_inverse=True)[1]
    number = ranks.new_ones(max(1, int(ranks.amax()) + 1)).cumsum(0) - 1
    return ranks == number[:, None, None]


def token_rewards(rewards: Tensor, scored: Tensor) -> Tensor:
    """Token rewards of rows that are judged up to some of their positions.

    Args:
        rewards: [B, L] float, for the row up to and including a position.
        scored: [K, B, L] bool, the tokens of each step, steps in the order of writing.

    Returns:
        [K, B, L]: at every token of a step the sum of what is paid in it. A reward for a part in
        which nothing is scored is dropped.
    """
    steps = scored.new_ones(len(scored)).cumsum(0)[:, None, None]
    complete_after = (scored * steps).amax(0).cummax(-1).values  # 0 for no step
    paid = (rewards * (complete_after == steps)).sum(-1, keepdim=True)
    return paid * scored


def estimate_gae(
    rewards: Tensor, values: Tensor, scored: Tensor, gamma: float, lam: float
) -> Estimates:
    """Returns and advantages of all tokens.

    Args:
        rewards: [K, B, L] float, of each token; those not scored are ignored.
        values: [K, B, L] float, predicted before the token was written.
        scored: [K, B, L] bool, the tokens of each step, steps in the order of writing. A step in
            which a rollout writes nothing is skipped.
        gamma: discount per step, in [0, 1].
        lam: lambda of GAE, in [0, 1].
    """
    returns, advantages = values.new_zeros(values.shape), values.new_zeros(values.shape)
    next_return = next_value = next_advantage = values.new_zeros(values.shape[1])
    for i in reversed(range(len(scored))):
        ahead = gamma * (next_value + lam * next_advantage)
        returns[i] = (rewards[i] + gamma * next_return[:, None]) * scored[i]
        advantages[i] = (rewards[i] - values[i] + ahead[:, None]) * scored[i]
        written = scored[i].any(-1)
        next_return = step_means(returns[i], scored[i]).where(written, next_return)
        next_value = step_means(values[i], scored[i]).where(written, next_value)
        next_advantage = step_means(advantages[i], scored[i]).where(written, next_advantage)
    return Estimates(returns, advantages)


def step_means(tokens: Tensor, scored: Tensor) -> Tensor:
    """The mean over the scored tokens of each step: [..., L] -> [...], 0 for a step without any."""
    return (tokens * scored).sum(-1) / scored.sum(-1).clamp(min=1)


def value_loss(
    values: Tensor, old: Tensor, returns: Tensor, weights: Tensor, epsilon: float, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This part's share of the batch's value loss, and sums for the metrics.

    Args:
        values: [K, B, L] float32, with gradient.
        old: [K, B, L], predicted when the policy sampled.
        returns: [K, B, L], the targets.
        weights: [K, B, L], of the tokens in the batch's mean; 0 where a token does not count.
        epsilon: clip range: how far a value may move from its old one.
        size: counts of the whole batch.
    """
    held = values.clamp(old - epsilon, old + epsilon)
    free, bound = (values - returns).square(), (held - returns).square()
    loss = (free.maximum(bound) / 2 * weights).sum()
    counts = weights > 0
    metrics = {
        "loss/value_avg": loss.detach(),
        "val/clipfrac_avg": ((bound > free) & counts).sum() / max(1, size.tokens),
        "val/mean": (values.detach() * counts).sum() / max(1, size.tokens),
    }
    return loss, metrics
