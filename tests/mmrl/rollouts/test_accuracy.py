"""Groups outside a band of accuracy are left out; completions that are too long count as wrong."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_policy
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.terms import Term
from mmrl.rollouts.credit import outside_band
from mmrl.rollouts.overlong import fail_overlong, find_overlong
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.types import Cutting, Sample
from tests.mmrl.runs import VQ, roll_out, vowels
from tests.mmrl.test_text_rl import text_config

NAN = float("nan")


def test_a_group_is_kept_where_its_mean_accuracy_is_in_the_band() -> None:
    groups = {(1, 1, 1, 1): 1, (1, 1, 1, 0): 0, (1, 0, 0, 0): 0, (0, 0, 0, 0): 1, (NAN,) * 4: 0}
    accuracy = torch.tensor([score for group in groups for score in group])
    outside = outside_band(accuracy, 4, (0.25, 0.75)).view(-1, 4)
    assert outside.all(1).tolist() == outside.any(1).tolist() == list(groups.values())
    twenty = torch.tensor([1.0] * 19 + [0.0])
    assert not bool(outside_band(twenty, 20, [0.05, 0.95]).any()), "bounds are inside"
    some = torch.tensor([1.0, NAN, 0.0, NAN])
    assert not bool(outside_band(some, 4, [0.4, 0.6]).any()), "the mean is of those that are known"


def scored(**components: list[float]) -> RewardScores:
    total = [
        sum(2 * s - 1 for s in row if s == s) for row in zip(*components.values(), strict=True)
    ]
    return RewardScores(components, {}, list(total))


def terms(*keys: str) -> list[Term]:
    return [Term(key, vowels, weight=2.0, scale=1.0, offset=-0.5) for key in keys]


def test_a_completion_that_is_too_long_is_wrong_and_the_other_rewards_stay() -> None:
    scores = scored(a=[1.0, 1.0, 0.0, NAN], other=[1.0, 1.0, 1.0, 1.0])
    after = fail_overlong(scores, terms("a"), [True, False, True, True])
    assert after.components["a"][:3] == [0.0, 1.0, 0.0]
    assert after.components["other"] == scores.components["other"]
    assert after.total == pytest.approx([0.0, 2.0, 0.0, 1.0])
    assert scores.components["a"][0] == 1.0, "what is logged is the raw score"


@pytest.mark.parametrize(("length", "wrong"), [(4, False), (5, True), (9, True), (10, True)])
def test_five_tokens_below_the_maximum_are_too_long(length: int, wrong: bool) -> None:
    tokens = torch.full((1, 12), 3)
    tokens[0, 2 + length :] = 7
    response = torch.arange(12)[None] >= 2
    valid = torch.arange(12)[None] <= 2 + length
    canvas = MaskedCanvas(tokens, response, None, (0, 8), 9, stop_ids=(7,), valid=valid)
    assert find_overlong(canvas) == [wrong]


def first_step(world: SimpleNamespace, folder: Path, **task: Any) -> RolloutBatch:
    """Two groups of four texts of eight tokens."""
    config = text_config(world, folder, **task)
    policy = load_policy(world.policy, VQ, max_prompt_length=100)
    return roll_out(Task("shapes", config.tasks["shapes"]), policy, 0, 0, 0, 1)


def halves(samples: list[Sample]) -> list[float]:
    """A group without any right completion, and one with two."""
    return [float(n in (5, 6)) for n in range(len(samples))]


def test_a_task_leaves_out_the_groups_outside_its_band(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewards = [{"name": "right", "reward": halves}, {"name": "vowels", "reward": vowels}]
    task = {"rewards": rewards, "accuracy_rewards": ["right"]}
    plain = first_step(world, tmp_path, **task)
    assert plain.left_out is None and "frac_outside_accuracy_band" not in plain.metrics
    batch = first_step(world, tmp_path, **task, accuracy_band=[0.05, 0.95])
    assert batch.left_out is not None
    assert batch.left_out.tolist() == [True] * 4 + [False] * 4
    assert batch.metrics["frac_outside_accuracy_band"] == 0.5
    assert torch.equal(batch.advantages, plain.advantages)
    assert "are left out" not in caplog.text
    again = first_step(world, tmp_path, **task, accuracy_band=[0.75, 0.8])
    assert again.left_out is not None and bool(again.left_out.all())
    assert "tasks.shapes: all groups of step 1 are left out" in caplog.text


def test_the_length_rule_is_in_the_rewards_and_counted(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    rewards = [{"name": "one", "reward": lambda samples: [1.0] * len(samples)}]
    plain = first_step(world, tmp_path, rewards=rewards)
    assert plain.rewards.tolist() == [1.0] * 8 and plain.metrics["frac_reward_zero_std"] == 1
    batch = first_step(world, tmp_path, rewards=rewards, strict_len_check=True)
    overlong = find_overlong(batch.rollout.canvas)
    assert any(overlong) and batch.rewards.tolist() == [float(not long) for long in overlong]
    assert batch.metrics["completions/overlong_ratio"] == sum(overlong) / 8
    assert batch.metrics["rewards/one/mean"] == 1.0, "the raw score is logged before the rule"


class Judged:
    """Judges chunks."""

    cutting = Cutting(2)

    def __call__(self, samples: list[Sample]) -> list[float]:
        return [0.0] * len(samples)


TWO = [{"name": "a", "reward": vowels}, {"name": "b", "reward": vowels}]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"accuracy_band": [0.9, 0.1]}, r"accuracy_band is \[0.9, 0.1\]; .*lowest, highest"),
        ({"accuracy_band": [0.1, 0.9], "rewards": TWO}, "accuracy_rewards .*the rewards: a, b"),
        ({"accuracy_band": [0, 1], "accuracy_rewards": ["c"], "rewards": TWO}, "'c'.*a, b"),
        ({"strict_len_check": True, "task": "text_to_image"}, "strict_len_check .*makes images"),
        ({"accuracy_band": [0, 1], "rewards": [{"name": "j", "reward": Judged()}]}, "whole compl"),
    ],
)
def test_settings_that_cannot_be_are_named(
    world: SimpleNamespace, tmp_path: Path, changes: dict, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        config = text_config(world, tmp_path, **changes)
        Task("x", config.tasks["shapes"]).build_rewards()
