"""Rewards on dummy samples: `python -m mmrl.probe` and dry runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmrl.planning.plan import describe
from mmrl.planning.reward_probe import Probe, make_dummy_samples, score_samples
from mmrl.probe import main
from mmrl.rewards.scoring.terms import Term
from mmrl.rl import main as rl
from mmrl.types import Prompt, Sample
from tests.mmrl.runs import World, command_line, run_config

SAMPLES = [Sample(f"prompt {n}", "x" * n) for n in range(6)]
OWN = """
def size(samples, unit: float = 1.0):
    return [sample.completion.width / unit for sample in samples]

def noisy(samples):
    return [sample.completion.convert('RGB').getpixel((0, 0))[0] for sample in samples]

def short(samples):
    return [1.0]

def broken(samples):
    raise OSError("no such thing")
"""


def probed(reward: Any, samples: list[Sample] = SAMPLES) -> Probe:
    return score_samples("1 x mine", Term("mine", reward), samples)


def test_range_failures_absent_scores_and_seconds_are_shown() -> None:
    def uneven(samples: list[Sample]) -> list[Any]:
        lengths = [len(str(sample.completion)) for sample in samples]
        return [None if n == 0 else float("nan") if n == 5 else float(n) for n in lengths]

    row = probed(uneven)
    said, warning = row.lines()
    start = "1 x mine: mean 2.5 (1 to 4), 1 of 6 without a score, 1 of 6 failed, "
    assert said.startswith(start) and said.endswith(" s a sample") and not row.failed
    assert warning.startswith("warning: 1 x mine failed on 1 of 6, first: returned nan; a score is")


def test_a_reward_that_scores_nothing_is_said_and_one_that_only_fails_has_failed() -> None:
    row = probed(lambda samples: [None] * len(samples))
    assert not row.failed and "no score for any" in row.warnings[0]
    row = probed(lambda samples: 1 / 0)
    assert row.failed and "failed on 6 of 6, first: raised ZeroDivisionError" in row.warnings[0]
    assert next(iter(row.lines())).startswith("1 x mine: 6 of 6 failed, ")


def test_rewards_of_ones_own_are_tried_before_the_run(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "wishes.txt").write_text("a red circle\na blue ring\n")

    def words(*entries: str) -> list[str]:
        rewards = ", ".join(f"{{name: {tmp_path}/own.py:{entry}}}" for entry in entries)
        more = [f"prompts={tmp_path}/wishes.txt", f"rewards=[{rewards}]"]
        return [*command_line(world, tmp_path / "run"), *(f"tasks.shapes.{word}" for word in more)]

    entries = ("size, unit: 2, key: half", "noisy, weight: 3", "short", "broken")
    assert main(words(*entries)) == 1
    tried = capsys.readouterr().out
    assert "1 x broken failed on 8 of 8, first: raised OSError('no such thing')" in tried
    assert rl([*words(*entries), "dry_run=true"]) == 1
    planned, error = capsys.readouterr()
    assert "error: reward 'short' failed on" in error
    for said, number in ((tried, 4), (" ".join(planned.split()), 2)):
        assert "1 x half: mean 128 (128 to 128)" in said and "to 255)" in said
        assert f"first: returned 1 scores for {number} samples; it must be a list" in said
    assert "2 to train on" in planned
    for command in (main, rl):
        assert command(words("size, unt: 2")) == 1
        said = capsys.readouterr().err
        assert "argument 'unt'" in said and "'unit'" in said


def test_dummy_texts_are_blank_right_and_wrong_and_rewards_vary_on_them(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [Prompt(str(n), "text", f"{n}?", answer=f"is {n}") for n in range(8)]
    samples = make_dummy_samples("text", prompts, 8, None)
    texts = [sample.completion for sample in samples]
    assert texts[:3] == ["", "is 1", "<answer>is 2</answer>"]
    assert texts[4:7] == ["", "is 6", "<answer>is 7</answer>"]
    rows = [{"prompt": f"a {color} ring?", "answer": color} for color in ("red", "blue", "green")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = command_line(world, tmp_path / "run")
    words += ["tasks.shapes.task=text", f"tasks.shapes.prompts={tmp_path}/rows.jsonl"]
    words += ["tasks.shapes.rewards=[{name: answer}]", "tasks.shapes.sampler={name: static}"]
    assert main([*words, "tasks.shapes.max_completion_length=8", "num_samples=6"]) == 0
    said = capsys.readouterr().out
    assert "on 3 dummy samples" not in said and "on 6 dummy samples" in said
    assert "1 x answer: mean " in said and "(0 to 1)" in said and "warning" not in said
    assert "on 2 dummy samples" in str(describe(run_config(world, tmp_path / "run")))
