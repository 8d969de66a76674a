"""`python -m mmrl.probe`: the rewards of a run score recorded or dummy samples."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.preflight.plan import describe
from mmrl.preflight.probe_samples import (
    cut_at_words,
    find_recorded,
    make_dummy_samples,
    read_recorded,
)
from mmrl.probe import main
from mmrl.rewards import REWARDS
from mmrl.rl import main as rl
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.run.run_directory import RunDirectory
from mmrl.training.completions import write_completions
from mmrl.types import Prompt
from tests.mmrl.runs import command_line, rollouts, run_config, trainer_of


class AlwaysFails:
    """A reward without a score for anything."""

    def __call__(self, samples: list) -> list[Any]:
        raise OSError("no such thing")


@pytest.fixture(scope="module")
def run(world: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a step with its samples."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    assert rl([*command_line(world, folder), "max_steps=1", "save_steps=1"]) == 0
    return folder


def words_of(world: SimpleNamespace, output: Path) -> list[str]:
    rewards = "[{name: shapes, mode: partial}, {name: shapes, key: strict, weight: 2}]"
    return [*command_line(world, output), f"tasks.shapes.rewards={rewards}"]


def test_recorded_samples_are_scored_as_the_run_did_and_nothing_is_written(
    world: SimpleNamespace,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "mmrl.models.policy.load_model", lambda *_, **__: pytest.fail("a model loaded")
    )
    path = run / "samples" / "completions_shapes_000001.parquet"
    before = sorted(run.rglob("*"))
    for place in ([], [f"samples={run}"], [f"samples={path}"]):
        output = tmp_path / "other" if place else run
        assert main([*words_of(world, output), *place]) == 0
        title, head, *rows = capsys.readouterr().out.splitlines()
        partial, strict = (row.split() for row in rows if "warning" not in row)
        assert title == f"tasks.shapes.rewards, on 8 recorded samples of {path}"
        assert head.split()[:4] == ["reward", "n", "min", "mean"]
        assert partial[:4] == ["1", "x", "shapes", "8"]
        [line] = RunDirectory(run).read_metrics()
        assert float(partial[5]) == pytest.approx(line["rewards/shapes/mean"], rel=1e-3)
        assert strict[:4] == ["2", "x", "strict", "8"]
    assert sorted(run.rglob("*")) == before and not (tmp_path / "other").exists()


def test_a_dry_run_tries_recorded_samples_and_without_them_dummy_samples(
    world: SimpleNamespace, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["resume_from_checkpoint=auto", "max_steps=2", "dry_run=true"]
    assert rl([*words_of(world, run), *more]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"on 8 recorded samples of {run}/samples/completions" in said
    assert rl([*words_of(world, run.parent / "new"), "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert "on 2 dummy samples" in said
    assert "2 x strict" in said and "warning" not in said, "blank images are all equally wrong"


def test_a_reward_that_only_fails_is_exit_status_one(
    world: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(REWARDS, "broken", f"{__name__}:AlwaysFails")
    words = command_line(world, tmp_path / "run")
    assert main([*words, "tasks.shapes.rewards=[{name: broken}, {name: shapes}]"]) == 1
    said = capsys.readouterr().out
    assert "1 x broken failed on 8 of 8, first: raised OSError('no such thing')" in said
    assert "1 x shapes" in said, "the others are tried all the same"


OWN = """
def size(samples, unit: float = 1.0):
    return [sample.completion.width / unit for sample in samples]

def noisy(samples):
    return [sample.completion.convert('RGB').getpixel((0, 0))[0] for sample in samples]

def short(samples):
    return [1.0]
"""


def test_rewards_of_ones_own_are_tried_before_the_run(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "wishes.txt").write_text("a red circle\na blue ring\n")

    def words(*entries: str) -> list[str]:
        rewards = ", ".join(f"{{name: {tmp_path}/own.py:{entry}}}" for entry in entries)
        more = [f"prompts={tmp_path}/wishes.txt", f"rewards=[{rewards}]"]
        return [*command_line(world, tmp_path / "run"), *(f"tasks.shapes.{word}" for word in more)]

    entries = ("size, unit: 2, key: half", "noisy, weight: 3", "short")
    assert main(words(*entries)) == 1
    tried = capsys.readouterr().out
    assert rl([*words(*entries), "dry_run=true", "verbose=true"]) == 1
    planned, error = capsys.readouterr()
    assert "error: reward 'short' failed on" in error
    for said, number in ((tried, 4), (planned, 2)):
        rows = {" ".join(line.split()[:3]): line.split() for line in said.splitlines()}
        assert rows["1 x half"][4:7] == ["128", "128", "128"]
        assert float(rows["3 x noisy"][6]) == 255
        assert f"first: returned 1 scores for {number} samples; it must be a list" in said
    assert "2 to train on" in planned and f"name: {tmp_path}/own.py:size" in planned
    for command in (main, rl):
        assert command(words("size, unt: 2")) == 1
        said = capsys.readouterr().err
        assert "tasks.shapes.rewards[0].unt is no argument of" in said and "'unit'" in said


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("samples=no/such/place", "samples is 'no/such/place'"),
        ("samples=configs", "has no completion of a prompt of shapes"),
        ("samples=README.md", "holds no completions of a run"),
        ("num_samples=1", "num_samples is 1"),
        ("sample=x", "Did you mean 'samples'?"),
    ],
)
def test_samples_that_are_none_are_refused(
    word: str,
    named: str,
    world: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*command_line(world, tmp_path / "run"), word]) == 1
    assert named in capsys.readouterr().err


def test_the_newest_completions_of_the_task_are_taken(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    for name in ("words_000010", "words_000009", "words_more_000020", "words_x"):
        (tmp_path / "samples" / f"completions_{name}.parquet").touch()
    newest = tmp_path / "samples" / "completions_words_000010.parquet"
    assert find_recorded(tmp_path, "words") == newest
    assert find_recorded(tmp_path / "samples", "words") == newest
    assert find_recorded(tmp_path, "other") is None and find_recorded(newest, "any") == newest


def test_completions_go_back_to_their_prompts_also_where_texts_are_equal(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    config = run_config(world, tmp_path)
    trainer = trainer_of(config)
    [(_, batch)] = rollouts(config, trainer).values()
    twins = [
        Prompt(f"{n // 4}", "text_to_image", "equal", metadata={"n": n // 4}) for n in range(8)
    ]
    batch = RolloutBatch(**{**vars(batch), "prompts": twins})
    run = RunDirectory(tmp_path)
    run.create(config)
    write_completions(run, "shapes", 3, batch)
    found = read_recorded(find_recorded(tmp_path, "shapes") or Path(), [twins[0], twins[4]], 4)
    assert found is not None
    assert [sample.metadata["n"] for sample in found.samples] == [0, 0, 1, 1]
    for sample, row in zip(found.samples, (0, 2, 4, 6), strict=True):
        assert sample.completion.tobytes() == batch.completions[row].tobytes()  # type: ignore
    assert read_recorded(find_recorded(tmp_path, "shapes") or Path(), [], 4) is None


def test_dummy_texts_are_blank_right_and_wrong() -> None:
    prompts = [Prompt(str(n), "text", f"{n}?", answer=f"is {n}") for n in range(8)]
    samples = make_dummy_samples("text", prompts, 8, None).samples
    texts = [sample.completion for sample in samples]
    assert texts[:3] == ["", "is 1", "<answer>is 2</answer>"]
    assert texts[4:7] == ["", "is 6", "<answer>is 7</answer>"]
    for sample in cut_at_words(samples, 1):
        assert "".join(chunk.text for chunk in sample.chunks or ()) == sample.completion


def test_text_rewards_vary_on_dummy_samples(
    world: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"a {color} ring?", "answer": color} for color in ("red", "blue", "green")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = run_config(world, tmp_path / "run")
    words = command_line(world, tmp_path / "run")
    words += ["tasks.shapes.task=text", f"tasks.shapes.prompts={tmp_path}/rows.jsonl"]
    words += ["tasks.shapes.rewards=[{name: answer}]", "tasks.shapes.sampler={name: static}"]
    assert main([*words, "tasks.shapes.max_completion_length=8", "num_samples=6"]) == 0
    said = capsys.readouterr().out
    assert "1 x answer 6 0 " in " ".join(said.split()) and "warning" not in said
    assert "dummy samples" in said and "on 2 dummy samples" in str(describe(config))
