"""Returns and advantages over denoising steps: generalised advantage estimation, step by step.

TraceRL's (arXiv 2509.06949) form of GAE (arXiv 1506.02438). Step i of a rollout writes the tokens
J_i, scored in pass i; r_j is the reward of token j, V_j the value that was predicted at its
position when step i began. With means over the tokens of a step marked by a star,

    Ret_j = r_j + gamma Ret*_(i+1)
    A_j   = r_j - V_j + gamma V*_(i+1) + gamma lambda A*_(i+1)

and everything behind the last step 0. The baseline is a token's own, the bootstrap that of a step:
how many tokens a step writes does not change how far reward is carried. With gamma = lambda = 1 and
a reward for the outcome R, Ret_j = R and A_j = R - V_j; with lambda = 0 only the next step counts.

A reward that stands at a position is for the row up to there. It is paid in the step that writes
the last token of it, to all tokens of that step: what was judged is whole then, and every token
that had a part in it was written by then. So a return is the sum of what is paid from its step on.
The public code reads a vector of rewards by position as one by step (MMaDA, LLaDA-V), or takes the
mean over a step's tokens (SDAR), which loses the share of tokens of other chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Estimates(NamedTuple):
    """`returns` and `advantages` [K, B, L] of every scored token, 0 elsewhere."""

    returns: Tensor
    advantages: Tensor


def step_means(tokens: Tensor, scored: Tensor) -> Tensor:
    """The mean over the scored tokens of each step: [..., L] -> [...], 0 for a step without any."""
    return (tokens * scored).sum(-1) / scored.sum(-1).clamp(min=1)


def outcome_rewards(outcomes: Tensor, scored: Tensor) -> Tensor:
    """Token rewards of rollouts that are judged when they are finished.

    Args:
        outcomes: [B] float.
        scored: [K, B, L] bool, the tokens of each step, steps in the order of writing.

    Returns:
        [K, B, L]: a rollout's outcome at every token of its last step, 0 elsewhere.
    """
    return position_rewards(at_end(outcomes, scored.shape[-1]), scored)


def at_end(outcomes: Tensor, length: int) -> Tensor:
    """Rewards [B] for whole rows, at the last of their positions: [B, length]."""
    return torch.nn.functional.pad(outcomes[:, None], (length - 1, 0))


def position_rewards(rewards: Tensor, scored: Tensor) -> Tensor:
    """Token rewards of rows that are judged up to some of their positions.

    Args:
        rewards: [B, L] float, for the row up to and including a position.
        scored: [K, B, L] bool, the tokens of each step, steps in the order of writing.

    Returns:
        [K, B, L]: at every token of a step the sum of what is paid in it. A reward up to where
        nothing is scored is paid to nobody.
    """
    steps = torch.arange(1, len(scored) + 1, device=scored.device)
    whole_after = (scored * steps[:, None, None]).amax(0).cummax(-1).values  # 0 for no step
    paid = (rewards * (whole_after == steps[:, None, None])).sum(-1, keepdim=True)
    return paid * scored


def estimate(
    rewards: Tensor, values: Tensor, scored: Tensor, gamma: float, lam: float
) -> Estimates:
    """Returns and advantages of all tokens.

    Args:
        rewards: [K, B, L] float, of each token; those not scored are ignored.
        values: [K, B, L] float, predicted before the token was written.
        scored: [K, B, L] bool, the tokens of each step, steps in the order of writing. A step in
            which a rollout writes nothing is passed over.
        gamma: discount per step, in [0, 1].
        lam: how much of later steps' surprise counts, in [0, 1].
    """
    returns, advantages = torch.zeros_like(values), torch.zeros_like(values)
    next_return = next_value = next_advantage = values.new_zeros(values.shape[1])
    for i in reversed(range(len(scored))):
        ahead = gamma * (next_value + lam * next_advantage)
        returns[i] = (rewards[i] + gamma * next_return[:, None]) * scored[i]
        advantages[i] = (rewards[i] - values[i] + ahead[:, None]) * scored[i]
        written = scored[i].any(-1)
        next_return = torch.where(written, step_means(returns[i], scored[i]), next_return)
        next_value = torch.where(written, step_means(values[i], scored[i]), next_value)
        next_advantage = torch.where(written, step_means(advantages[i], scored[i]), next_advantage)
    return Estimates(returns, advantages)
