"""Rewards of chunks in the loop: where they land, what carries them, and judges that give them."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms import group_advantages
from mmrl.config import ConfigError
from mmrl.planning.plan import describe
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.credit import assign_credit, place_rewards
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.training.trainer import Trainer
from mmrl.types import Chunk, Cutting, Sample
from tests.mmrl.pair import Pair
from tests.mmrl.runs import command_line, metrics, rollouts, task_config, trainer_of, vowels
from tests.mmrl.test_text_rl import text_config
from tests.mmrl.training.test_value_model import BACKBONES, method
from tests.rewards.judge_server import counts, judge_server


class Vowels:
    """Vowels less other letters of every chunk."""

    cutting = Cutting(2)

    def __init__(self) -> None:
        self.seen: list[Sample] = []

    def __call__(self, samples: list[Sample]) -> list[Any]:
        self.seen += samples
        return [[_vowels(chunk.text) for chunk in sample.chunks or ()] for sample in samples]


def _vowels(text: str) -> float:
    return float(sum(1 if c in "aeiou" else -0.5 for c in text))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with judge_server() as address:
        yield address


def process_config(
    world: SimpleNamespace, folder: Path, backbone: str | None = "copy", **task: Any
) -> RLConfig:
    """Texts of eight tokens in chunks of two, and whatever the task changes."""
    rewards = [{"name": "chunks", "reward": Vowels(), "weight": 2.0}]
    config = text_config(world, folder, **{"rewards": rewards, **task})
    config.tasks["shapes"].algorithm = method(backbone)
    config.model.max_prompt_length = 100
    return config


def first_step(config: RLConfig) -> tuple[Trainer, Task, RolloutBatch]:
    trainer = trainer_of(config)
    [(task, batch)] = rollouts(config, trainer).values()
    return trainer, task, batch


def expected_columns(rows: list[list[float]]) -> list[list[float]]:
    """Of one group: centred column by column, over the root of the summed sample variances."""
    columns = [[row[n] for row in rows if n < len(row)] for n in range(max(map(len, rows)))]
    means = [sum(column) / len(column) for column in columns]
    squares = [
        sum((value - mean) ** 2 for value in column) / (len(column) - 1) if column[1:] else 0.0
        for column, mean in zip(columns, means, strict=True)
    ]
    size = math.sqrt(sum(squares)) + 1e-4
    return [[(value - means[n]) / size for n, value in enumerate(row)] for row in rows]


def test_rewards_land_on_the_last_token_of_their_chunk_and_nowhere_else(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    rewards = [
        {"name": "chunks", "reward": Vowels(), "weight": 2.0},
        {"name": "whole", "reward": vowels},
    ]
    config = process_config(world, tmp_path, rewards=rewards)
    _, task, batch = first_step(config)
    canvas, earned = batch.rollout.canvas, batch.token_rewards
    samples = task.scorer.terms[0].reward.seen  # type: ignore[attr-defined]
    assert earned is not None and earned.shape == canvas.tokens.shape
    width = canvas.tokens.shape[1]
    for first in (0, 4):
        rows = [
            [vowels([sample])[0], *(2 * _vowels(chunk.text) for chunk in sample.chunks)]
            for sample in samples[first : first + 4]
        ]
        for n, (row, sample) in enumerate(
            zip(expected_columns(rows), samples[first : first + 4], strict=True), start=first
        ):
            wanted = torch.zeros(width)
            wanted[-1] = row[0]
            for value, chunk in zip(row[1:], sample.chunks, strict=True):
                wanted[chunk.end] += value
                assert bool(canvas.scorable[n, chunk.end])
            torch.testing.assert_close(earned[n], wanted, atol=1e-5, rtol=1e-5)
            assert "".join(chunk.text for chunk in sample.chunks) == sample.completion
            assert sample.chunks[-1].end == int(canvas.scorable[n].nonzero()[-1])
    totals = [2 * sum(map(_vowels, [c.text for c in s.chunks])) + vowels([s])[0] for s in samples]
    assert batch.rewards.tolist() == pytest.approx(totals)
    torch.testing.assert_close(batch.advantages, group_advantages(batch.rewards, 4, "group"))


def test_rewards_land_on_the_same_tokens_however_many_rollouts_are_sampled_at_once(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    found = []
    for size in (64, 4, 3):
        _, _, batch = first_step(process_config(world, tmp_path, rollout_batch_size=size))
        canvas = batch.rollout.canvas
        found.append((canvas.tokens[canvas.response], batch.token_rewards, batch.rewards))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert one is not None and torch.equal(one, same)


def test_without_a_value_model_the_sum_over_chunks_is_the_reward_of_the_whole(
    world: SimpleNamespace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, task, batch = first_step(process_config(world, tmp_path, backbone=None))
    task.build_rewards()
    assert "summed to one reward" in caplog.text and "trace_rl_value" in caplog.text
    assert batch.token_rewards is None
    samples = task.scorer.terms[0].reward.seen  # type: ignore[attr-defined]
    totals = [2 * sum(_vowels(chunk.text) for chunk in sample.chunks) for sample in samples]
    assert batch.rewards.tolist() == pytest.approx(totals)
    means = [sum(_vowels(c.text) for c in s.chunks) / len(s.chunks) for s in samples]
    assert batch.scores["chunks"] == pytest.approx(means)
    assert trainer.update({"shapes": (task, batch)})["grad_norm"] > 0


@BACKBONES
def test_the_value_model_learns_returns_of_chunks(
    world: SimpleNamespace, tmp_path: Path, backbone: str
) -> None:
    trainer, task, batch = first_step(process_config(world, tmp_path, backbone))
    item = trainer._prepare(task, batch, 0)
    earned = batch.token_rewards
    assert earned is not None
    returns: Tensor = torch.cat([found.returns for found in item.estimates], 1).sum(0)
    scored = item.passes.scored
    for row in range(len(batch)):
        # values start at 0 and nothing is discounted: a return is what is still to be paid
        at = [
            int(s)
            for s in (scored[:, row].int() * torch.arange(1, len(scored) + 1)[:, None]).sum(0)
        ]
        for place in scored[:, row].any(0).nonzero().flatten().tolist():
            due = sum(
                float(earned[row, n]) for n in range(len(at)) if max(at[: n + 1]) >= at[place]
            )
            assert float(returns[row, place]) == pytest.approx(due, abs=1e-5)
    assert not bool(returns[~scored.any(0)].any()), "nothing beside what is scored has a return"
    values = trainer.update({"shapes": (task, batch)})
    assert values["loss/value_avg"] > 0 and values["grad_norm"] > 0


def test_groups_whose_chunks_differ_are_kept_where_their_sums_are_equal(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    class Opposed(Vowels):
        def __call__(self, samples: list[Sample]) -> list[Any]:
            return [
                [0.0] * len(s.chunks or ())
                if len(s.chunks or ()) < 2
                else [1.0 - n % 2 * 2, n % 2 * 2 - 1.0, *[0.0] * (len(s.chunks or ()) - 2)]
                for n, s in enumerate(samples)
            ]

    for backbone, kept in (("copy", True), (None, False)):
        rewards = [{"name": "chunks", "reward": Opposed()}]
        config = process_config(
            world, tmp_path, backbone, rewards=rewards, skip_zero_std_groups=True
        )
        _, _, batch = first_step(config)
        assert batch.left_out is not None and bool(batch.left_out.any()) != kept
        assert batch.metrics["frac_reward_zero_std"] == 1


def test_shuffled_advantages_are_those_of_other_rollouts(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    plain = first_step(process_config(world, tmp_path))[2]
    dealt = first_step(process_config(world, tmp_path, shuffle_advantages=True))[2]
    assert plain.completions == dealt.completions
    assert plain.token_rewards is not None and dealt.token_rewards is not None
    assert not torch.equal(plain.token_rewards, dealt.token_rewards)
    torch.testing.assert_close(
        plain.advantages.sort().values, dealt.advantages.sort().values, atol=0, rtol=0
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("whole", marks=pytest.mark.slow),
        "chunks",
        pytest.param("chunks without a value model", marks=pytest.mark.slow),
    ],
)
def test_a_run_with_a_judge_trains(
    world: SimpleNamespace, tmp_path: Path, url: str, kind: str
) -> None:
    entry: dict[str, Any] = {"name": "judge", "model": "right", "urls": [url]}
    if kind != "whole":
        entry |= {"chunk_size": 3, "chunk_at": "lines", "cache_dir": str(tmp_path / "judged")}
    before = counts(url)["asked"].get("right", 0)
    backbone = "copy" if kind == "chunks" else None
    config = process_config(world, tmp_path, backbone, rewards=[entry])
    run = train(config)
    lines = [line for line in metrics(run) if "loss" in line]
    assert len(lines) == 2 and all(line["grad_norm"] > 0 for line in lines)
    low, high = (1, 5) if kind == "whole" else (-1, 1)
    for line in lines:
        assert low <= line["rewards/judge/mean"] <= high and line["reward_std"] > 0
        assert line["rewards/judge/failures"] == 0 and ("loss/value_avg" in line) == bool(backbone)
    assert counts(url)["asked"]["right"] > before
    assert any("eval/shapes/judge" in line for line in metrics(run))


@pytest.mark.slow
def test_two_processes_give_the_run_of_one(
    world: SimpleNamespace, pair: Pair, tmp_path: Path, url: str
) -> None:
    texts = ["a red circle", "two green squares", "a purple ring"]
    prompts = tmp_path / "text.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt": text}) for text in texts))
    reward = f"{{name: judge, model: right, urls: ['{url}'], chunk_size: 2}}"
    value = "{name: trace_rl, slice_size: 1, value: {backbone: copy, lam: 0.9}}"
    words = [
        f"tasks.shapes.{word}"
        for word in (
            "task=text",
            f"prompts={prompts}",
            "max_completion_length=8",
            "num_generations=4",
            "sampler={name: static, steps: 4, block_size: 4, eos: stop}",
            f"algorithm={value}",
            f"rewards=[{reward}]",
        )
    ]
    common = [
        "max_steps=2",
        "save_steps=0",
        "learning_rate=1e-4",
        "adam_epsilon=1e-3",
        "model.max_prompt_length=40",
        "per_device_train_batch_size=4",
    ]
    pair.same_as_one(tmp_path, [*command_line(world, tmp_path), *[*words, *common]])


def test_chunks_of_images_are_refused_before_a_model_loads(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = task_config(world, rewards=[{"name": "chunks", "reward": Vowels()}])
    with pytest.raises(ConfigError, match=r"tasks\.x\.rewards judge chunks .*text_to_image makes"):
        Task("x", config).build_rewards()


def test_a_dry_run_says_whether_the_judge_is_there(
    world: SimpleNamespace, tmp_path: Path, url: str
) -> None:
    entry = {"name": "judge", "model": "right", "urls": [url], "chunk_size": 4}
    gone = {**entry, "urls": ["http://127.0.0.1:9/v1"], "key": "gone"}
    before = counts(url)["asked"]
    said = str(describe(process_config(world, tmp_path, rewards=[entry, gone])))
    assert "1 x judge: ready" in " ".join(said.split())
    assert "cannot run here: http://127.0.0.1:9/v1 is not there" in said
    assert counts(url)["asked"] == before, "nothing was judged"


def test_texts_that_end_at_once_have_no_chunks_and_teach_nothing(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    task = Task("words", process_config(world, tmp_path).tasks["shapes"])
    texts = ["", "aa", "", "bb", "aab", "a", "ab", "b"]
    cut = [tuple(Chunk(n, "", c) for n, c in enumerate(text)) for text in texts]
    samples = [Sample("p", text, chunks=own) for text, own in zip(texts, cut, strict=True)]
    earned = assign_credit(task, task.scorer.score(samples), 0, 0, 0, 1)
    assert earned.rewards.isnan().tolist() == [not text for text in texts]
    assert earned.advantages[[0, 2]].tolist() == [0, 0] and earned.advantages[1] > 0
    assert earned.columns is not None
    rewards = place_rewards(earned.columns, cut, 5)
    assert not bool(rewards[[0, 2]].any())
    size = math.sqrt(4.5 + 4.5) + 1e-4  # of the scores 2 and -1 at two places
    expected = [[1.5 / size] * 2, [-1.5 / size] * 2]
    torch.testing.assert_close(rewards[[1, 3], :2], torch.tensor(expected))
    assert not bool(rewards[:, 3:].any()), "there is no reward of the whole"
