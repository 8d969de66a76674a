"""Advantages against numbers by hand and against TRL's formula written out."""

import math

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import group_advantages
from mmrl.algorithms.advantages import group_statistics

NAN = float("nan")


def advantages(rewards: list[float], num_generations: int, scale: str) -> list[float]:
    return group_advantages(torch.tensor(rewards), num_generations, scale).tolist()


def trl(rewards: Tensor, num_generations: int, scale: str) -> Tensor:
    """GRPO as TRL writes it: nan-aware mean and sample deviation, 1e-4 in the denominator."""
    groups = rewards.view(-1, num_generations)
    mean = groups.nanmean(1).repeat_interleave(num_generations)
    if scale == "batch":
        known = rewards[~rewards.isnan()]
        deviation = known.std().expand_as(rewards)
    else:
        each = torch.stack([group[~group.isnan()].std() for group in groups])
        deviation = each.repeat_interleave(num_generations)
    centred = rewards - mean
    return centred if scale == "none" else centred / (deviation + 1e-4)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_rollouts_without_a_reward_are_left_out_and_get_no_advantage(scale: str) -> None:
    got = advantages([1.0, NAN, 3.0, NAN, NAN, NAN], 3, scale)
    size = 1.0 if scale == "none" else 1 / (math.sqrt(2.0) + 1e-4)
    assert got == pytest.approx([-size, 0.0, size, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("missing", [[], [3, 7, 8]])
def test_advantages_are_those_of_trl(scale: str, missing: list[int]) -> None:
    rewards = torch.rand(24, generator=torch.Generator().manual_seed(0)).double()
    rewards[missing] = NAN
    expected = trl(rewards, 6, scale).nan_to_num(0.0)
    torch.testing.assert_close(group_advantages(rewards, 6, scale).double(), expected)


def test_a_baseline_is_of_the_others_of_the_batch_or_nothing() -> None:
    rewards = torch.tensor([1.0, 0.0, 5.0, 2.0, NAN, 4.0])

    def of(baseline: str, scale: str = "none") -> list[float]:
        return group_advantages(rewards, 3, scale, baseline).tolist()

    assert of("leave_one_out") == [-1.5, -3.0, 4.5, -2.0, 0.0, 2.0]
    assert of("none") == [1.0, 0.0, 5.0, 2.0, 0.0, 4.0]
    assert of("batch") == pytest.approx([-1.4, -2.4, 2.6, -0.4, 0.0, 1.6])
    known = rewards[~rewards.isnan()]
    scaled = (known - known.mean()) / (known.std() + 1e-4)
    found = group_advantages(rewards, 3, "batch", "batch")
    torch.testing.assert_close(found[~rewards.isnan()], scaled)
    assert group_advantages(torch.tensor([2.0, 2.0]), 2, "none", "leave_one_out").tolist() == [0, 0]
    assert group_advantages(torch.tensor([1.0, 3.0]), 1, "none", "batch").tolist() == [-1, 1]


def test_statistics_are_the_mean_the_spread_in_groups_and_the_share_without_spread() -> None:
    values = group_statistics(torch.tensor([1.0, 3.0, 2.0, 2.0, NAN, NAN]), 2)
    assert values["reward"] == 2.0 and values["reward_std"] == pytest.approx(math.sqrt(2.0) / 3)
    assert values["frac_reward_zero_std"] == pytest.approx(2 / 3)


def test_softmax_weights_pull_towards_the_best_and_away_from_the_worst() -> None:
    rewards = [1.0, 0.0, 2.0, 5.0, 5.0, 5.0]
    toward = [math.exp(r) for r in rewards[:3]]
    away = [math.exp(-r) for r in rewards[:3]]
    expected = [3 * (t / sum(toward) - a / sum(away)) for t, a in zip(toward, away, strict=True)]
    found = advantages(rewards, 3, "softmax")
    assert found == pytest.approx([*expected, 0.0, 0.0, 0.0], abs=1e-6)
    assert advantages([NAN, 0.0, 1.0, NAN, NAN, NAN], 3, "softmax")[0] == 0
    assert advantages([NAN, 0.0, 1.0, NAN, NAN, NAN], 3, "softmax")[3:] == [0.0, 0.0, 0.0]


def joint(rewards: list[list[float]], num_generations: int, scale: str) -> list[list[float]]:
    return group_advantages(torch.tensor(rewards), num_generations, scale).tolist()


def test_outcome_and_chunks_by_hand() -> None:
    # variances of the columns: 2, 8, and 0 where one rollout stands alone
    rewards = [[1.0, 5.0, 9.0], [3.0, 1.0, NAN]]
    size = math.sqrt(2 + 8) + 1e-4
    expected = [[-1 / size, 2 / size, 0.0], [1 / size, -2 / size, 0.0]]
    for got, wanted in zip(joint(rewards, 2, "group"), expected, strict=True):
        assert got == pytest.approx(wanted)
    assert joint(rewards, 2, "none") == [[-1.0, 2.0, 0.0], [1.0, -2.0, 0.0]]


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_equal_chunks_have_no_advantage_and_opposite_ones_a_finite_one(scale: str) -> None:
    equal = joint([[0.5, 1.0, 2.0], [0.5, 1.0, NAN], [0.5, NAN, NAN]] * 2, 3, scale)
    assert all(value == pytest.approx(0, abs=1e-9) for row in equal for value in row)
    first, second = joint([[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]], 2, scale)
    assert first == [-value for value in second] and sum(first) == pytest.approx(0)
    assert 0 < max(first) <= 1, "equal sums do not make the deviation small"


def test_where_all_have_as_many_chunks_their_advantages_add_up_to_that_of_the_sum() -> None:
    draw = torch.Generator().manual_seed(0)
    rewards = torch.randn(8, 3, generator=draw)
    total = group_advantages(rewards.sum(1), 4, "none")
    torch.testing.assert_close(group_advantages(rewards, 4, "none").sum(1), total)


def test_chunks_may_be_divided_by_their_own_deviation_and_one_alone_stays_raw() -> None:
    rewards = [[1.0, 5.0, 9.0], [3.0, 1.0, NAN], [NAN, NAN, NAN], [NAN, NAN, NAN]]
    sizes = [math.sqrt(2) + 1e-4, math.sqrt(8) + 1e-4]
    expected = [[-1 / sizes[0], 2 / sizes[1], 9.0], [1 / sizes[0], -2 / sizes[1], 0.0]]
    for got, wanted in zip(
        joint(rewards, 4, "chunk"), [*expected, [0.0] * 3, [0.0] * 3], strict=True
    ):
        assert got == pytest.approx(wanted)
    alone = joint([[7.0, NAN], [NAN, NAN]], 2, "chunk")
    assert alone == [[0.0, 0.0], [0.0, 0.0]], "an outcome that stands alone is no advantage"
