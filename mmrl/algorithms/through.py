"""The loss of methods that follow the reward's own gradient through the last denoising steps.

    loss = -sum over rollouts of share * mean over copies of R(decode(x)),

with x the latent that the strategy finishes again (`mmrl.generation.flow.last_steps`), R the
weighted sum of the rewards, and share that of a rollout in the aggregation. No advantage, ratio or
old policy takes part. A reward is hacked by its gradient sooner than by its values: watch a scorer
that is not trained, and add a KL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def reward_loss(rewards: Tensor, weights: Tensor) -> Tensor:
    """The scalar loss of rewards [n, B] with a gradient, of n copies of each rollout; `weights`
    [K, B, N] are those of the entries of its passes, K / n for each copy."""
    share = weights.sum(-1).unflatten(0, (len(rewards), -1)).sum(1)
    return -(rewards * share.to(rewards)).sum()
