"""The bonus of completions that differ: closed forms, what gets none, and its way to the update."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmrl.algorithms.advantages import group_advantages
from mmrl.algorithms.completion_value import credit_slices
from mmrl.config import ConfigError
from mmrl.rewards import build_reward
from mmrl.rollouts.completion import complete, credit_tokens
from mmrl.rollouts.diversity.measured import describe, differences, measure
from mmrl.rollouts.diversity.metrics import Completions, list_tokens
from mmrl.rollouts.diversity.registry import build_metrics
from mmrl.rollouts.diversity_bonus import add_bonus
from mmrl.types import Canvas, Sample
from tests.mmrl.pair import Pair
from tests.mmrl.rollouts.test_completion import sampled
from tests.mmrl.runs import RED, command_line, run_config

TOKENS = build_metrics(["tokens"])
SHAPES = build_metrics(["shapes"])


def with_bonus(rewards: list[float | None], rows: list[list[int]], weight: float) -> list:
    described = describe(TOKENS, Completions([""] * len(rows), rows))
    return add_bonus(rewards, TOKENS, described, len(rows), {"tokens": weight})


def test_a_reward_grows_by_the_weighted_mean_difference_to_the_others() -> None:
    rows = [[1, 1], [1, 1], [1, 2]]  # differences to the others: 1/4, 1/4 and 1/2
    assert with_bonus([1.0, 2.0, 1.0], rows, 0.8) == pytest.approx([1.2, 2.4, 1.4])


def test_of_equally_good_completions_the_rare_one_has_the_largest_advantage() -> None:
    rewards = with_bonus([1.0, 1.0, 1.0, 0.0], [[1, 1], [1, 1], [2, 2], [1, 1]], 0.5)
    advantages = group_advantages(torch.tensor(rewards), 4, "group")
    assert advantages.argmax() == 2 and advantages.argmin() == 3


def test_a_bonus_needs_a_positive_reward() -> None:
    rewards = [0.0, -1.0, None]
    assert with_bonus(rewards, [[1], [2], [3]], 1.0) == rewards


def test_a_difference_that_is_not_known_gives_no_bonus() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    noise = Image.fromarray(pixels)
    described = describe(SHAPES, Completions([noise, noise], [[1], [2]]))
    own = differences(SHAPES, described, 2)["background"]
    assert all(map(math.isnan, own))
    assert add_bonus([1.0, 1.0], SHAPES, described, 2, {"background": 1.0}) == [1.0, 1.0]


@given(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=6, max_size=6))
def test_the_differences_to_the_others_have_the_diversity_of_the_group_as_mean(
    rows: list[list[int]],
) -> None:
    described = describe(TOKENS, Completions([""] * 6, rows))
    own = differences(TOKENS, described, 3)["tokens"]
    groups = measure(TOKENS, described, 3).groups["tokens"]
    assert [sum(own[:3]) / 3, sum(own[3:]) / 3] == pytest.approx(groups)


def test_rollouts_and_their_completions_get_the_bonus(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    policy, plain = sampled(world, tmp_path)
    _, raised = sampled(world, tmp_path, diversity_weights={"tokens": 0.5})
    canvas = plain.rollout.canvas
    assert torch.equal(raised.rollout.canvas.tokens, canvas.tokens)
    assert raised.scores == plain.scores

    def earned(canvas: Canvas) -> list[float | None]:
        finished = policy.decode(canvas, plain.prompts)
        samples = [Sample.of(*each) for each in zip(plain.prompts, finished, strict=True)]
        rewards = build_reward(RED)(samples)
        described = describe(TOKENS, Completions(finished, list_tokens(canvas)))
        return add_bonus(rewards, TOKENS, described, 4, {"tokens": 0.5})

    rewards = earned(canvas)
    assert raised.rewards.tolist() == pytest.approx(rewards)
    assert raised.rewards.tolist() != pytest.approx(plain.rewards.tolist())
    parts = [earned(part) for _, part in complete(policy, plain.rollout, 3, rows=8)]
    credit = credit_slices(torch.tensor(rewards), torch.tensor(parts), 4, "batch", 0.0)
    expected = credit_tokens(plain.rollout, credit.advantages)
    assert raised.token_advantages is not None
    torch.testing.assert_close(raised.token_advantages, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"background": 0.5}, r"diversity_weights is 'background'.*tokens"),
        ({"tokens": -0.5}, r"diversity_weights\.tokens is -0\.5"),
    ],
)
def test_weights_name_what_is_measured_and_are_not_negative(
    world: SimpleNamespace, tmp_path: Path, weights: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_config(world, tmp_path, task={"diversity_weights": weights})


def test_two_processes_give_the_bonus_of_one(
    world: SimpleNamespace, pair: Pair, tmp_path: Path
) -> None:
    words = ["max_steps=2", "save_steps=0", "learning_rate=1e-4", "adam_epsilon=1e-3"]
    words += ["tasks.shapes.diversity_weights={tokens: 0.5}"]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *words])
