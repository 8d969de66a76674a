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

from typing import NamedTuple

import torch
from torch import Tensor

from mmrl.algorithms.aggregation import BatchSize
from mmrl.algorithms.algorithm_config import ValueConfig


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
    """Returns and advantages of the tokens of finished rollouts. Tokens of a step differ in their
    values alone, so the recursion is over the means of steps. It runs on the CPU, where sums always
    have the same order, and which is fast for small tensors.

    `values` [K, B, L] are those of the value model as it was when the policy sampled; `rewards` [B,
    L] what was earned up to a position, as advantages among the group; for the outcome that is the
    last one. NaN in a row where no reward applies: such a rollout is left out. A reward for a part
    in which nothing is scored is dropped. `scored` [K, B, L] bool has each token in one pass at the
    most: one per slice of the trace. `steps` [B, L] int64 are ordered as the steps, where a pass
    scores slices of several blocks that were written one after the other; None where each pass is a
    step."""
    counted = scored & ~rewards.isnan().any(-1)[None, :, None]
    tokens, value = counted.any(0).cpu(), (values * counted).sum(0).cpu()
    order = counted.byte().argmax(0) if steps is None else steps
    order = order.cpu().where(tokens, -1)
    step, number = order.clamp(min=0), int(order.amax().clamp(min=0)) + 1
    empty = value.new_zeros(len(value), number + 1)
    count = empty[:, 1:].scatter_add(1, step, tokens.to(value.dtype))
    mean = empty[:, 1:].scatter_add(1, step, value) / count.clamp(min=1)
    # 0 is for what is judged before any step is complete
    paid = empty.scatter_add(1, order.cummax(1).values + 1, rewards.cpu().nan_to_num().to(value))
    found = estimate_gae(paid[:, 1:], mean, count > 0, config.gamma, config.lam)
    returns, surprise = (each.gather(1, step) for each in (found.returns, found.advantages + mean))
    each = (returns, surprise - value)
    return Estimates(*(part.to(values.device) * counted for part in each))


def estimate_gae(
    rewards: Tensor, values: Tensor, written: Tensor, gamma: float, lam: float
) -> Estimates:
    """Returns and advantages [B, S] of the steps of rows, with discount gamma and lambda in [0, 1]:
    of what is paid in each step, `rewards` [B, S] float, and `values` [B, S] float, predicted
    before it. A step in which a row writes nothing (`written` [B, S] bool) is skipped."""
    returns, advantages = values.new_zeros(values.shape), values.new_zeros(values.shape)
    later = values.new_zeros(3, len(values))  # return, value and advantage of the next step
    for i in reversed(range(values.shape[1])):
        returns[:, i] = rewards[:, i] + gamma * later[0]
        advantages[:, i] = rewards[:, i] - values[:, i] + gamma * (later[1] + lam * later[2])
        here = torch.stack((returns[:, i], values[:, i], advantages[:, i]))
        later = here.where(written[:, i], later)
    return Estimates(returns * written, advantages * written)


def value_loss(
    values: Tensor, old: Tensor, returns: Tensor, weights: Tensor, epsilon: float, size: BatchSize
) -> tuple[Tensor, dict[str, Tensor]]:
    """This part's share of the batch's value loss, and sums for the metrics: of `values` [K, B, L]
    float32, with gradient, those predicted when the policy sampled (`old`), from which they may
    move by `epsilon`, and the targets (`returns`). `weights` are those of the tokens in the mean
    over the batch of this size, 0 where one does not count."""
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
