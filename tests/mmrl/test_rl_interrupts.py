"""Ctrl-C in every phase of a run: it stops cleanly and resumes exactly."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.data import load_prompts
from mmrl.evaluation import sample_batch
from mmrl.rl import main, train
from mmrl.trainer import Trainer
from mmrl.types import Sample
from tests.mmrl.runs import (
    RED,
    ROOT,
    command_line,
    loadable,
    metrics,
    process,
    redness,
    run_config,
    same_weights,
    wait_for,
)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupted_in(phase: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a run that gets Ctrl-C in a phase of its second step (or in its evaluation)."""
    calls = []

    def rewarding(samples: list[Sample]) -> list[float]:
        calls.append(1)
        if len(calls) == 2:
            interrupt()
        return redness(samples)

    if phase == "update":
        original: Callable = Trainer._loss

        def loss(self: Trainer, *arguments: Any) -> Any:
            if self.step == 1:
                interrupt()
            return original(self, *arguments)

        monkeypatch.setattr(Trainer, "_loss", loss)
        return {}
    key, other = ("rewards", "eval_rewards") if phase == "rollout" else ("eval_rewards", "rewards")
    return {key: [{"name": "redness", "reward": rewarding}], other: [RED]}


@pytest.mark.parametrize("phase", ["rollout", "update", "evaluation"])
def test_ctrl_c_finishes_the_step_and_the_run_resumes_exactly(
    phase: str, world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"eval_steps": 2, "save_steps": 0, "max_steps": 4}
    task = {"eval_prompts": world.held_out}
    handler = signal.getsignal(signal.SIGINT)  # a shell's background job ignores the signal
    with monkeypatch.context() as patch:
        interrupting = {**task, **interrupted_in(phase, patch)}
        with pytest.raises(KeyboardInterrupt):
            train(run_config(world, tmp_path / "run", task=interrupting, **changes))
    assert signal.getsignal(signal.SIGINT) is handler
    assert loadable(tmp_path / "run") == [2]
    assert not (tmp_path / "run" / "final").exists()
    changes["task"] = {**task, "eval_rewards": [RED]}
    resumed = {"resume_from_checkpoint": "auto", **changes}
    train(run_config(world, tmp_path / "run", **resumed))
    train(run_config(world, tmp_path / "whole", **changes))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "run" / "final", tmp_path / "whole" / "final")


def test_ctrl_c_before_the_first_step_leaves_a_directory_that_starts_again(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    def evaluating(samples: list[Sample]) -> list[float]:
        interrupt()
        return redness(samples)

    task = {"eval_prompts": world.held_out, "eval_rewards": [{"name": "r", "reward": evaluating}]}
    with pytest.raises(KeyboardInterrupt):
        train(run_config(world, tmp_path / "run", task=task, eval_steps=1))
    again = {"max_steps": 1, "resume_from_checkpoint": "auto"}
    train(run_config(world, tmp_path / "run", **again))
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1]


def test_ctrl_c_in_an_evaluation_stops_after_the_batch_and_resuming_makes_up_for_it(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = {"eval_prompts": world.held_out, "rollout_batch_size": 2}
    changes = {"task": task, "eval_steps": 10, "save_steps": 0, "max_steps": 1}
    batches = []

    def interrupting(policy: Any, rows: Any, *rest: Any) -> Any:
        batches.append(len(rows))
        if len(batches) == calls:
            interrupt()
        return sample_batch(policy, rows, *rest)

    monkeypatch.setattr("mmrl.evaluation.sample_batch", interrupting)
    whole = -(-len(load_prompts(world.held_out, "text_to_image")) // 2)
    for calls, resume in ((1, None), (whole + 2, "auto")):  # the first evaluation, then the last
        batches.clear()
        with pytest.raises(KeyboardInterrupt):
            train(run_config(world, tmp_path / "run", resume_from_checkpoint=resume, **changes))
        assert len(batches) == calls
    assert loadable(tmp_path / "run") == [1] and not (tmp_path / "run" / "final").exists()
    monkeypatch.undo()
    train(run_config(world, tmp_path / "run", resume_from_checkpoint="auto", **changes))
    train(run_config(world, tmp_path / "whole", **changes))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert (tmp_path / "run" / "final").exists()


def test_ctrl_c_while_the_model_loads_stops_at_once_and_evaluates_nothing(
    world: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def loading(*_: Any, **__: Any) -> None:
        interrupt()
        pytest.fail("loading went on")

    held_out = f"tasks.shapes.eval_prompts={world.held_out}"
    words = [*command_line(world, tmp_path / "run"), "eval_steps=1", held_out]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("models.load_policy", loading)
            assert main(words) == 130
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capsys.readouterr().err.strip().splitlines() == ["stopped"]
    assert main([*words, "max_steps=1"]) == 0


@pytest.mark.parametrize("overlap", [True, False])
def test_a_second_ctrl_c_stops_at_once(
    overlap: bool, world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmrl.interrupt.SAME_REQUEST", 0.0)

    def rewarding(samples: list[Sample]) -> list[float]:
        while True:  # in a thread of its own the reward goes on until the run breaks it off
            interrupt()
            time.sleep(0.05)

    task = {"rewards": [{"name": "r", "reward": rewarding}]}
    with pytest.raises(KeyboardInterrupt):
        train(run_config(world, tmp_path / "run", task=task, overlap_rewards=overlap))
    assert loadable(tmp_path / "run") == []
    assert not [t for t in threading.enumerate() if t.name.startswith("reward ")]


def test_ctrl_c_while_importing_is_one_line_as_well() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "mmrl.rl", "dry_run=true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as starting:
        assert starting.stderr is not None
        assert any(line.split()[-1] == "mmrl" for line in starting.stderr)  # torch comes after it
        starting.send_signal(signal.SIGINT)
        said = [line for line in starting.stderr if not line.startswith("import time:")]
        assert starting.wait(timeout=60) == 130
    assert said == ["stopped\n"]


def test_ctrl_c_on_the_command_line_ends_cleanly(world: SimpleNamespace, tmp_path: Path) -> None:
    words = command_line(world, tmp_path / "run")
    running: subprocess.Popen = process([*words, "max_steps=100000", "save_steps=0"])
    wait_for(tmp_path / "run" / "metrics.jsonl", running)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) == 130
    said = running.communicate()[1].decode()
    assert "Traceback" not in said and said.strip().splitlines()[-1] == "stopped"
    [step] = loadable(tmp_path / "run")
    assert metrics(tmp_path / "run")[-1]["step"] == step
    assert main([*words, "resume_from_checkpoint=auto", f"max_steps={step + 1}"]) == 0
