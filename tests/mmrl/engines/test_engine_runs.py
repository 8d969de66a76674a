"""Runs whose rollouts an engine of its own process writes: exactness, staleness, faults."""

import time
from pathlib import Path
from typing import Any

import pytest

from mmrl import rl
from mmrl.config import load_config
from mmrl.training.trainer import Trainer
from tests.mmrl.engines.served import TASK, Served, serving, words, write_start
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics
from tests.mmrl.same_runs import close, same_rollouts

FAR = {"max_logp_difference": "9"}
"""Of runs whose random weights move far in a step."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_start(tmp_path_factory.mktemp("qwen3"))


@pytest.fixture(scope="module")
def engine(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(start, tmp_path_factory.mktemp("engine") / "log") as served:
        yield served


def staleness(run: Path) -> list[float]:
    return [line["sampling/staleness"] for line in metrics(run) if "sampling/staleness" in line]


@pytest.mark.parametrize(
    ("transfer", "changes"),
    [
        ("path", []),
        ("group", ["model.lora={r: 4}"]),
        ("path", ["model.lora={r: 4, use_dora: true}"]),
    ],
    ids=["files-all", "broadcast-lora", "files-dora"],
)
def test_a_run_with_an_engine_is_the_run_without_it(
    start: Path, tmp_path: Path, engine: Served, transfer: str, changes: list[str]
) -> None:
    assert rl.main(words(start, tmp_path / "own", *changes)) == 0
    served = words(start, tmp_path / "served", *changes, engine=engine.url, transfer=transfer)
    assert rl.main(served) == 0
    same_rollouts(tmp_path / "own", tmp_path / "served", 3)
    kind = {"tolerance": 1e-9} if not changes else {}
    close(tmp_path / "own" / "final", tmp_path / "served" / "final", **kind)
    lines = [line for line in metrics(tmp_path / "served") if "loss" in line]
    assert max(line["sampling/sampling_logp_difference/max"] for line in lines) < 1e-4
    assert staleness(tmp_path / "served") == [0, 0, 0]


def test_rollouts_are_as_stale_as_allowed_and_a_killed_run_asks_for_them_again(
    start: Path, tmp_path: Path, engine: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = words(start, tmp_path, "max_steps=4", engine=engine.url, max_staleness="1", **FAR)
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        rl.train(load_config(rl.RLConfig, given))
    monkeypatch.undo()
    assert rl.main([*given, "resume_from_checkpoint=auto"]) == 0
    # the resumed run begins with the weights of its checkpoint
    assert staleness(tmp_path) == [0, 1, 0, 1]


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let a run be killed in the update after so many steps, with rollouts in flight."""
    update = Trainer.update

    def updating(self: Trainer, batches: Any) -> Any:
        if self.step == steps:
            raise KeyboardInterrupt
        return update(self, batches)

    monkeypatch.setattr(Trainer, "update", updating)


def test_staleness_grows_to_its_limit_and_ends_with_the_run(
    start: Path, tmp_path: Path, engine: Served
) -> None:
    given = words(start, tmp_path, "max_steps=5", engine=engine.url, max_staleness="2", **FAR)
    assert rl.main(given) == 0
    assert staleness(tmp_path) == [0, 1, 2, 2, 2]


def test_a_killed_engine_ends_the_run_by_name_and_the_resumed_run_is_the_uninterrupted_one(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Served(start, tmp_path / "log")
    given = words(start, tmp_path / "killed", engine=first.url)
    update, ended = Trainer.update, []

    def updating(self: Trainer, batches: Any) -> Any:
        found = update(self, batches)
        if self.step == 2:
            first.kill()
            ended.append(time.monotonic())
        return found

    monkeypatch.setattr(Trainer, "update", updating)
    assert rl.main(given) == 1
    assert time.monotonic() - ended[0] < 60
    assert first.url in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.undo()
    with serving(start, tmp_path / "log2", first.port) as second:
        assert rl.main([*given, "resume_from_checkpoint=auto"]) == 0
        assert rl.main(words(start, tmp_path / "whole", engine=second.url)) == 0
    close(tmp_path / "killed" / "final", tmp_path / "whole" / "final", tolerance=0)


def test_log_probs_that_differ_too_much_end_the_run(
    start: Path, tmp_path: Path, engine: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = [f"{TASK}.algorithm.temperature=0.25", f"{TASK}.eval_prompts=''", "eval_steps=0"]
    given = words(start, tmp_path, *warm, engine=engine.url, max_logp_difference="0.01")
    assert rl.main(given) == 1
    assert "max_logp_difference, 0.01" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pair", "sharing_pair"])
def test_two_processes_with_an_engine_are_one_without_also_where_they_share_the_weights(
    start: Path, tmp_path: Path, engine: Served, request: pytest.FixtureRequest, name: str
) -> None:
    both: Pair = request.getfixturevalue(name)
    both.begin("mmrl.rl", words(start, tmp_path / "two", engine=engine.url))
    both.end()
    assert rl.main(words(start, tmp_path / "one")) == 0
    same_rollouts(tmp_path / "one", tmp_path / "two", 3)
    close(tmp_path / "one" / "final", tmp_path / "two" / "final", tolerance=1e-5)
