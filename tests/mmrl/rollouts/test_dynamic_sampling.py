"""Steps are filled with groups that teach something; texts at their limit are punished."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.rollouts.dynamic_sampling import fill_groups
from mmrl.rollouts.overlong import soft_overlong_punishment
from mmrl.rollouts.rollout import RolloutBatch, sample_groups
from mmrl.rollouts.tasks import Task
from mmrl.types import Sample
from tests.mmrl.pair import Pair
from tests.mmrl.runs import VQ, command_line, metrics
from tests.mmrl.test_text_rl import text_config

FILTERED = {"skip_zero_std_groups": True, "num_prompts": 3}


def first_step(
    world: SimpleNamespace, folder: Path, dull: str = "", **task: Any
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


def test_groups_of_further_prompts_take_the_places_of_equal_ones(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    plain, _ = first_step(world, tmp_path, **FILTERED)
    first = prompts(plain)
    assert plain.left_out is not None and not bool(plain.left_out.any())
    dull = first[1].split()[-1]  # the number of one of them, and of others behind it
    some, seen = first_step(world, tmp_path, dull, max_num_gen_batches=9, **FILTERED)
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
    more, _ = first_step(world, tmp_path, f"{dull} red", max_num_gen_batches=9, **FILTERED)
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
    world: SimpleNamespace, tmp_path: Path, pair: Pair
) -> None:
    (tmp_path / "red.py").write_text(REWARD)
    task = {"num_prompts": 4, "skip_zero_std_groups": True, "max_num_gen_batches": 3}
    words = [f"tasks.shapes.{key}={value}" for key, value in task.items()]
    words.append(f"tasks.shapes.rewards=[{{name: '{tmp_path}/red.py:red'}}]")
    common = ["max_steps=2", "learning_rate=1e-4", "adam_epsilon=1e-3"]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *words, *common])
    assert all(line["num_gen_batches"] > 1 for line in metrics(tmp_path / "one"))


def test_a_step_without_groups_to_learn_from_ends_at_its_limit(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    batch, seen = first_step(world, tmp_path, "a", max_num_gen_batches=3, **FILTERED)
    assert batch.left_out is not None and bool(batch.left_out.all())
    assert batch.metrics["num_gen_batches"] == 3 and len(seen) == 9
    plain, seen = first_step(world, tmp_path, "a", **FILTERED)
    assert len(seen) == 3 and "num_gen_batches" not in plain.metrics


def test_the_punishment_falls_to_one_over_the_last_tokens() -> None:
    # the example of the paper: 16,384 tokens and a cache of 4,096
    lengths = torch.tensor([1, 16384, 16385, 18432, 20480, 20481])
    expected = [0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]
    assert soft_overlong_punishment(lengths, 20480, 4096) == pytest.approx(expected)


def test_texts_near_their_limit_are_punished_and_those_without_an_end_left_out(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    plain, _ = first_step(world, tmp_path)
    batch, _ = first_step(world, tmp_path, soft_punish_cache=6, mask_truncated_completions=True)
    canvas = batch.rollout.canvas
    expected = [min(0.0, (2 - n) / 6) for n in canvas.counted.sum(-1).tolist()]
    assert (batch.rewards - plain.rewards).tolist() == pytest.approx(expected) and any(expected)
    assert batch.metrics["completions/overlong_punishment"] == pytest.approx(sum(expected) / 8)
    assert batch.metrics["rewards/r/mean"] == plain.metrics["rewards/r/mean"]
    ended = canvas.ends.any(-1)
    assert batch.left_out is not None and torch.equal(batch.left_out, ~ended)
    assert 0 < int(ended.sum()) < 8


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
def test_settings_that_cannot_be_are_named(
    world: SimpleNamespace, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        first_step(world, tmp_path, **changes)


def test_a_prompt_may_have_a_single_rollout_where_the_batch_is_the_baseline(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    row = {"baseline": "batch", "scale_rewards": "none"}
    task = {"num_generations": 1, "num_prompts": 4, "algorithm": row}
    batch, _ = first_step(world, tmp_path, **task)
    assert batch.advantages.tolist() == pytest.approx([-1.5, -0.5, 0.5, 1.5])
