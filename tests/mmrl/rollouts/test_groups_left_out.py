"""Groups that teach nothing are left out or sampled again; texts at their limit are punished."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.algorithms import load_algorithm
from mmrl.config import ConfigError
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.models import load_policy
from mmrl.rewards.scoring.reward_scores import RewardScores
from mmrl.rewards.scoring.terms import Term
from mmrl.rollouts.credit import assign_credit, outside_band
from mmrl.rollouts.dynamic_sampling import fill_groups
from mmrl.rollouts.overlong import fail_overlong, find_overlong, soft_overlong_punishment
from mmrl.rollouts.rollout import RolloutBatch, sample_groups
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task
from mmrl.types import Cutting, Sample
from tests.mmrl.pair import Pair
from tests.mmrl.runs import VQ, World, command_line, metrics, roll_out, vowels
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


def first_step(world: World, folder: Path, **task: Any) -> RolloutBatch:
    """Two groups of four texts of eight tokens."""
    config = text_config(world, folder, **task)
    policy = load_policy(world.policy, VQ, max_prompt_length=100)
    return roll_out(Task("shapes", config.tasks["shapes"]), policy, 0, 0, 0, 1)


def halves(samples: list[Sample]) -> list[float]:
    """A group without any right completion, and one with two."""
    return [float(n in (5, 6)) for n in range(len(samples))]


def test_a_task_leaves_out_the_groups_outside_its_band(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
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


def test_the_length_rule_is_in_the_rewards_and_counted(world: World, tmp_path: Path) -> None:
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
    world: World, tmp_path: Path, changes: dict, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        config = text_config(world, tmp_path, **changes)
        Task("x", config.tasks["shapes"]).build_rewards()


FILTERED = {"skip_zero_std_groups": True, "num_prompts": 3}


def filled_step(
    world: World, folder: Path, dull: str = "", **task: Any
) -> tuple[RolloutBatch, list[str]]:
    """The groups of a step of a task with twelve prompts, and the prompts that were scored; those
    with a word of `dull` have equal rewards."""
    seen: list[str] = []

    def reward(samples: list[Sample]) -> list[float]:
        seen.extend(sample.prompt for sample in samples[::4])
        plain = [any(word in s.prompt.split() for word in dull.split()) for s in samples]
        return [1.0 if same else n % 4 for n, same in enumerate(plain)]

    config = text_config(world, folder, rewards=[{"name": "r", "reward": reward}], **task)
    words = ["red", "green", "blue"]
    rows = [{"prompt": f"a {word} ring {n}"} for word in words for n in range(4)]
    (folder / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))
    policy = load_policy(world.policy, VQ, max_prompt_length=100)
    job = Task("shapes", config.tasks["shapes"])
    lay_out = policy.canvas

    def canvas(*of: Any) -> Any:
        """A canvas on which one token in 24 ends a text, as the policy is not trained."""
        laid: Any = lay_out(*of)
        first, end = laid.columns
        return replace(laid, stop_ids=(*laid.stop_ids, *range(first, end, 24)))

    if job.config.task == "text":
        policy.canvas = canvas  # pyright: ignore[reportAttributeAccessIssue]
    return fill_groups(sample_groups(job, policy, 0, 0, 0, 1), policy), seen


def prompts(batch: RolloutBatch) -> list[str]:
    return [prompt.text for prompt in batch.prompts[::4]]


def test_groups_of_other_prompts_take_places_of_equal_ones(world: World, tmp_path: Path) -> None:
    plain, _ = filled_step(world, tmp_path, **FILTERED)
    first = prompts(plain)
    assert plain.left_out is not None and not bool(plain.left_out.any())
    dull = first[1].split()[-1]  # the number of one of them, and of others behind it
    some, seen = filled_step(world, tmp_path, dull, max_num_gen_batches=9, **FILTERED)
    assert some.left_out is not None and not bool(some.left_out.any())
    assert all(dull != text.split()[-1] for text in prompts(some))
    kept = [n for n, text in enumerate(first) if text.split()[-1] != dull]
    assert [prompts(some)[n] for n in kept] == [first[n] for n in kept] and len(kept) < 3
    rows = torch.tensor([4 * n + g for n in kept for g in range(4)])
    assert torch.equal(
        some.rollout.canvas.tokens[rows, -8:], plain.rollout.canvas.tokens[rows, -8:]
    )
    assert len(set(some.names)) == len(some) == 12
    tries = int(some.metrics["num_gen_batches"])
    assert 1 < tries <= 9 and len(seen) >= 3 + tries - 1
    assert some.metrics["frac_reward_zero_std"] == pytest.approx(1 - len(kept) / 3)
    # the further group of a place does not depend on which other places have one
    more, _ = filled_step(world, tmp_path, f"{dull} red", max_num_gen_batches=9, **FILTERED)
    for n, (one, other) in enumerate(zip(prompts(some), prompts(more), strict=True)):
        assert one == other or "red" in one, n


REWARD = '''
def red(samples):
    """Equal for the samples of every other prompt."""
    means = [s.completion.convert("RGB").resize((1, 1)).getpixel((0, 0))[0] for s in samples]
    return [mean / 255 if len(s.prompt) % 2 else 1.0 for s, mean in zip(samples, means)]
'''


@pytest.mark.slow
def test_further_groups_are_the_same_on_one_process_and_on_two(
    world: World, tmp_path: Path, pair: Pair
) -> None:
    (tmp_path / "red.py").write_text(REWARD)
    task = {"num_prompts": 4, "skip_zero_std_groups": True, "max_num_gen_batches": 3}
    words = [f"tasks.shapes.{key}={value}" for key, value in task.items()]
    words.append(f"tasks.shapes.rewards=[{{name: '{tmp_path}/red.py:red'}}]")
    common = ["max_steps=2", "learning_rate=1e-4", "adam_epsilon=1e-3"]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *words, *common])
    assert all(line["num_gen_batches"] > 1 for line in metrics(tmp_path / "one"))


def test_a_step_without_groups_to_learn_from_ends_at_a_limit(world: World, tmp_path: Path) -> None:
    batch, seen = filled_step(world, tmp_path, "a", max_num_gen_batches=3, **FILTERED)
    assert batch.left_out is not None and bool(batch.left_out.all())
    assert batch.metrics["num_gen_batches"] == 3 and len(seen) == 9
    plain, seen = filled_step(world, tmp_path, "a", **FILTERED)
    assert len(seen) == 3 and "num_gen_batches" not in plain.metrics


def test_the_punishment_falls_to_one_over_the_last_tokens() -> None:
    # the example of the paper: 16,384 tokens and a cache of 4,096
    lengths = torch.tensor([1, 16384, 16385, 18432, 20480, 20481])
    expected = [0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]
    assert soft_overlong_punishment(lengths, 20480, 4096) == pytest.approx(expected)


def test_texts_near_their_limit_are_punished_and_those_without_an_end_left_out(
    world: World, tmp_path: Path
) -> None:
    plain, _ = filled_step(world, tmp_path)
    batch, _ = filled_step(world, tmp_path, soft_punish_cache=6, mask_truncated_completions=True)
    canvas = batch.rollout.canvas
    expected = [min(0.0, (2 - n) / 6) for n in canvas.counted.sum(-1).tolist()]
    assert (batch.rewards - plain.rewards).tolist() == pytest.approx(expected) and any(expected)
    assert batch.metrics["completions/overlong_punishment"] == pytest.approx(sum(expected) / 8)
    assert batch.metrics["rewards/r/mean"] == plain.metrics["rewards/r/mean"]
    ended = canvas.ends.any(-1)
    assert batch.left_out is not None and torch.equal(batch.left_out, ~ended)
    assert 0 < int(ended.sum()) < 8


def test_what_is_no_reward_of_a_task_counts_where_each_is_normalized() -> None:
    aggregation = {"multi_objective_aggregation": "normalize_then_sum", "scale_rewards": "none"}
    method = load_algorithm({"name": "grpo", **aggregation})
    scores = scored(math=[1.0, 0.0, 1.0, 0.0], draw=[0.0, 0.0, 0.0, 5.0])  # of a task behind it
    settings = TaskConfig(task="text", num_generations=4)
    task: Any = SimpleNamespace(name="t", config=settings, algorithm=method)
    task.scorer = SimpleNamespace(terms=[SimpleNamespace(key="math", scale=1, offset=0, weight=2)])
    found = assign_credit(task, scores, 0, 0, 0, 1).advantages
    assert found.tolist() == pytest.approx([1.232, -2.232, 1.232, -0.232], abs=1e-2)


IMAGES = {"task": "text_to_image", "max_completion_length": None}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_num_gen_batches": 3}, "max_num_gen_batches is 3; .*skip_zero_std_groups: true"),
        (
            {**FILTERED, "max_num_gen_batches": 3, "algorithm": {"scale_rewards": "batch"}},
            "max_num_gen_batches is 3; it must be 1 where advantages",
        ),
        ({"soft_punish_cache": 9}, "soft_punish_cache is 9; .*at most max_completion_length"),
        ({"mask_truncated_completions": True, **IMAGES}, "mask_truncated.*makes images"),
        ({"num_generations": 1}, "num_generations is 1; .*at least 2.*baseline: batch"),
    ],
)
def test_settings_that_cannot_fill_steps_are_named(
    world: World, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        filled_step(world, tmp_path, **changes)


def test_a_prompt_may_have_a_single_rollout_where_the_batch_is_the_baseline(
    world: World, tmp_path: Path
) -> None:
    row = {"baseline": "batch", "scale_rewards": "none"}
    task = {"num_generations": 1, "num_prompts": 4, "algorithm": row}
    batch, _ = filled_step(world, tmp_path, **task)
    assert batch.advantages.tolist() == pytest.approx([-1.5, -0.5, 0.5, 1.5])
