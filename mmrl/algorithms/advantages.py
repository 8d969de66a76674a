"""Advantages: how much better a rollout is than its group (GRPO, arXiv 2402.03300).

    A = (r - baseline) / (deviation + 1e-4)

`baseline` names what a reward r is compared with: the mean of the `group` (GRPO), the mean of the
others of the group (`leave_one_out`, RLOO, arXiv 2402.14740), the mean of the whole `batch`
(REINFORCE++, arXiv 2501.03262), or nothing (`none`, PPO, whose value model predicts r).
`scale_rewards` names the deviation: of the `group`, of the whole `batch`, or `none` (no division;
Dr. GRPO, arXiv 2503.20783). Deviations are those of a sample, as in TRL, or of a population, as in
flow_grpo (arXiv 2505.05470). `softmax` gives weights of likelihoods instead: A = G (softmax(r) -
softmax(-r)) over the group's G rewards (wd1, arXiv 2507.08838; the factor G turns the mean over
rollouts into the sum over the group).

Of several rewards r is the weighted sum, or that of the advantages each has within its group
(`normalize_then_sum`): divided by the deviation of the batch as in GDPO (arXiv 2601.05242) and TRL,
or not at all as in MixGRPO (arXiv 2507.21802).

Rewards of the chunks of a rollout (process rewards) are centred chunk by chunk, the k-th on the
k-th chunks of the group, and divided by one deviation for all, the root of the sum of the variances
of the outcome and of every k-th chunk: so the weights of rewards keep their meaning, and an outcome
alone is the case above. With `chunk` each k-th chunk has a separate deviation, as in the code of
TraceRL (arXiv 2509.06949), whose deviations are those of a population; the reward of a chunk that
only one rollout has stays as it is there, and gives 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


EQUAL = 1e-8
"""Rewards that differ less are equal."""


def group_advantages(
    rewards: Tensor,
    num_generations: int,
    scale_rewards: str,
    baseline: str = "group",
    deviation: str = "sample",
) -> Tensor:
    """Advantages of rollouts in the order of their groups of `num_generations`, and of their chunks
    on the same scale: of `rewards` [B], or [B, C] with a column for the outcome and for every
    chunk; float, NaN where no reward applies.

    Returns [B] or [B, C] float32; 0 where no reward applies, and with a baseline of the group where
    all its rewards are equal. The other arguments are columns of `AlgorithmConfig`."""
    groups = rewards.double().unflatten(0, (-1, num_generations))
    centred = BASELINES[baseline](groups)
    if scale_rewards == "softmax":
        return _likelihood_weights(centred).nan_to_num(0.0).flatten(0, 1).float()
    if scale_rewards != "none":
        pooled = groups.flatten(0, 1)[None] if scale_rewards == "batch" else groups
        variance = _variance(pooled, deviation)
        if scale_rewards != "chunk":
            variance = variance.sum(-1, keepdim=True)
        centred = centred / (variance.sqrt() + 1e-4)
    if scale_rewards == "chunk":
        alone = (~groups.isnan()).sum(1, keepdim=True) == 1
        alone[..., 0] = False  # the outcome
        centred = groups.where(alone, centred)
    return centred.nan_to_num(0.0).flatten(0, 1).float()


def normalize_then_sum(
    rewards: Tensor, weights: Tensor, num_generations: int, deviation: str = "sample"
) -> Tensor:
    """[B] float64: the weighted sum of several rewards [B, R] float, each normalized within its
    group, by `weights` [R]. One that is NaN, as it does not apply, adds nothing; NaN where none
    applies."""
    total = rewards.new_zeros(len(rewards)).double()
    for weight, column in zip(weights, rewards.T, strict=True):
        total += weight * group_advantages(column, num_generations, "group", deviation=deviation)
    return total.masked_fill(rewards.isnan().all(1), float("nan"))


def _above_group(groups: Tensor) -> Tensor:
    return groups - groups.nanmean(1, keepdim=True)


def _above_others(groups: Tensor) -> Tensor:
    """r - (sum of the others) / (n - 1), which is n / (n - 1) times the distance to the mean."""
    number = (~groups.isnan()).sum(1, keepdim=True)
    return _above_group(groups) * number / (number - 1).clamp(min=1)


BASELINES: dict[str, Callable[[Tensor], Tensor]] = {
    "group": _above_group,
    "leave_one_out": _above_others,
    "batch": lambda groups: groups - groups.nanmean((0, 1), keepdim=True),
    "none": lambda groups: groups,
}
"""Baselines by the name used in configurations: rewards [P, G, C] -> what they are above it."""
OF_GROUP = ("group", "leave_one_out")
"""Those that compare the rollouts of a prompt, of which there must be two."""


def group_statistics(rewards: Tensor, num_generations: int) -> dict[str, float]:
    """`reward`, `reward_std` (mean deviation within groups) and `frac_reward_zero_std`."""
    groups = rewards.double().view(-1, num_generations)
    deviation = _variance(groups).sqrt()
    return {
        "reward": float(groups.nanmean()),
        "reward_std": float(deviation.mean()),
        "frac_reward_zero_std": float((deviation < EQUAL).double().mean()),
    }


def equal_groups(rewards: Tensor, num_generations: int) -> Tensor:
    """[B] bool: rollouts of groups in which all known rewards are equal, or none is known."""
    groups = rewards.double().view(-1, num_generations)
    return (_variance(groups).sqrt() < EQUAL).expand(-1, num_generations).flatten()


def _likelihood_weights(centred: Tensor) -> Tensor:
    """[P, G] rewards -> G (softmax(r) - softmax(-r)) over those that are known."""
    known = ~centred.isnan()
    toward, away = (
        (sign * centred).masked_fill(~known, -float("inf")).softmax(1) for sign in (1, -1)
    )
    return (toward - away) * known.sum(1, keepdim=True)


def _variance(groups: Tensor, deviation: str = "sample") -> Tensor:
    """[P, 1] variance of groups [P, G] ignoring NaN; 0 of fewer than two values."""
    known = ~groups.isnan()
    number = known.sum(1, keepdim=True)
    centred = (groups - groups.nanmean(1, keepdim=True)).nan_to_num(0.0)
    freedom = number - 1 if deviation == "sample" else number
    variance = centred.square().sum(1, keepdim=True) / freedom.clamp(min=1)
    return variance.where(number > 1, 0.0)
