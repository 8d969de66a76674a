"""Rewards that are chosen by the metadata of prompts."""

from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.rewards import build_reward, check_reward
from mmrl.rewards.registry.interface import PartialFailure
from mmrl.types import Sample

COUNT = {"name": "countdown", "scale": 2.0, "offset": 1.0}
ENTRY = {"name": "per_domain", "rewards": {"sums": COUNT, "code": {"name": "math", "weight": 0.5}}}


def sample(domain: str | None, completion: str, **metadata: Any) -> Sample:
    return Sample("p", completion, {**metadata, **({"domain": domain} if domain else {})})


def test_each_sample_is_scored_by_the_reward_of_its_domain_alone() -> None:
    reward = build_reward(ENTRY)
    asked = [
        sample("code", "\\boxed{3}", answer="3"),
        sample("sums", "<answer>4+5</answer>", numbers=[4, 5], target=9),
        sample("poems", "a rose"),
        sample(None, "a rose"),
        sample("sums", "<answer>4</answer>", numbers=[4, 5], target=9),
    ]
    assert reward(asked) == [0.5, 3.0, None, None, 1.0]
    assert reward([]) == []


def test_prompts_that_the_reward_of_their_domain_cannot_read_are_named() -> None:
    reward: Any = build_reward(ENTRY)
    reward.check({"domain": "poems"})
    with pytest.raises(ValueError, match="target"):
        reward.check({"domain": "sums", "numbers": [1]})


def test_a_failure_of_one_sample_leaves_the_others_their_scores() -> None:
    reward = build_reward(ENTRY)
    good = sample("sums", "<answer>4+5</answer>", numbers=[4, 5], target=9)
    with pytest.raises((PartialFailure, ValueError)):
        reward([good, sample("sums", "<answer>1</answer>", numbers="x", target=9)])


@pytest.mark.parametrize(
    ("rewards", "named"),
    [({}, "per_domain.rewards"), ({"a": {"name": "nosuch"}}, "per_domain.rewards.a.*nosuch")]
    + [({"a": {"name": "jpeg", "frames": "last"}}, "rewards.a.frames is 'last'; .*null")],
)
def test_wrong_entries_are_named_with_their_domain(rewards: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build_reward({"name": "per_domain", "rewards": rewards})
    check_reward(ENTRY)
