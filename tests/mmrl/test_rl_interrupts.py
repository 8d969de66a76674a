"""Ctrl-C in every phase of a run: it stops at once, loses nothing and resumes exactly."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from mmrl.generation.masked.samplers.denoise import BlockNetwork
from mmrl.rewards.http import stop
from mmrl.rl import main, train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.held_out import evaluate
from mmrl.rollouts.rollout import sample_groups
from mmrl.runtime.interrupt import (
    SAME_REQUEST,
    Interrupted,
    StopRequest,
    _request,
    check,
    leave_together,
)
from mmrl.training.trainer import Trainer
from mmrl.types import Sample
from tests.mmrl.runs import (
    RED,
    ROOT,
    World,
    command_line,
    loadable,
    metrics,
    redness,
    run_config,
    same_weights,
    wait_for,
)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


CHANGES = {"eval_steps": 2, "save_steps": 0, "max_steps": 3}
"""Of every run here; with two inner iterations, AdamW and a reference."""


def settings(world: World, output: Path, **changes: Any) -> RLConfig:
    task = {"eval_prompts": world.held_out, "eval_rewards": [RED], "rollout_batch_size": 4}
    task |= changes.pop("task", {})
    return run_config(world, output, task=task, algorithm={"beta": 0.1}, **{**CHANGES, **changes})


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody stops."""
    return train(settings(world, tmp_path_factory.mktemp("whole") / "run"))


class Interrupting:
    """Ctrl-C in a phase of a run, and what the run computes after it.

    Attributes:
        phase: `denoise` or `rewards` of the second step, its `score`, its `update`, its `second`
            inner iteration, or the evaluation after it (`evaluate`).
        after: forward passes since then.
    """

    def __init__(self, phase: str, patch: pytest.MonkeyPatch) -> None:
        self.phase, self.after, self.step, self.told = phase, 0, 0, False
        patch.setattr("mmrl.rollouts.chain.sample_groups", self._noting(sample_groups))
        patch.setattr(BlockNetwork, "__call__", self._calling("denoise", BlockNetwork.__call__))
        patch.setattr("mmrl.training.rl_progress.evaluate", self._evaluating(evaluate))
        patch.setattr(Trainer, "_score", self._calling("score", Trainer._score))
        patch.setattr(Trainer, "_inner_step", self._iterating(Trainer._inner_step))

    def reward(self, samples: list[Sample]) -> list[float]:
        """Endless in that phase: its thread is told to stop at the end of the run."""
        while self.phase == "rewards" and self.step == 1:
            self._tell()
            stop.sleep(0.02)
        return redness(samples)

    def _tell(self) -> None:
        if not self.told:
            interrupt()
            self.told = True  # after the signal: a thread may lose its turn between the two

    def _noting(self, original: Callable) -> Callable:
        def sampling(task: Any, policy: Any, step: int, *rest: Any) -> Any:
            self.step = step
            return original(task, policy, step, *rest)

        return sampling

    def _evaluating(self, original: Callable) -> Callable:
        def evaluating(policy: Any, prompts: Any, *rest: Any, **options: Any) -> Any:
            self.step = 10 if self.step == 1 else self.step
            return original(policy, prompts, *rest, **options)

        return evaluating

    def _calling(self, kind: str, original: Callable) -> Callable:
        def calling(*arguments: Any) -> Any:
            now = ("update" if torch.is_grad_enabled() else "score") if kind == "score" else kind
            wanted = {"evaluate": ("denoise", 10)}.get(self.phase, (self.phase, 1))
            self.after += self.told
            if (now, self.step) == wanted:
                self._tell()
            return original(*arguments)

        return calling

    def _iterating(self, original: Callable) -> Callable:
        def iterating(trainer: Trainer, plan: Any, sums: Any, leaving: Any) -> None:
            if self.phase == "second" and self.step == 1 and leaving is None:
                self._tell()
            original(trainer, plan, sums, leaving)

        return iterating


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("phase", "left_at", "forwards"),
    [
        ("denoise", 1, {0}),
        slow("rewards", 1, {0, 1}),  # its thread may find the next pass already past its check
        ("update", 1, {0}),
        ("second", 2, {2}),  # its two micro-batches
        slow("evaluate", 2, {0}),
    ],
)
def test_ctrl_c_leaves_the_step_where_it_is_and_the_run_resumes_exactly(
    phase: str,
    left_at: int,
    forwards: set[int],
    whole: Path,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = signal.getsignal(signal.SIGINT)  # a shell's background job ignores the signal
    with monkeypatch.context() as patch:
        interrupting = Interrupting(phase, patch)
        rewards = [{"name": "redness", "reward": interrupting.reward}]
        with pytest.raises(KeyboardInterrupt):
            train(settings(world, tmp_path / "run", task={"rewards": rewards}))
    assert interrupting.told and interrupting.after in forwards
    assert signal.getsignal(signal.SIGINT) is handler
    assert not [t for t in threading.enumerate() if t.name.startswith("reward ")]
    assert loadable(tmp_path / "run") == [left_at]
    assert not (tmp_path / "run" / "final").exists()
    assert (tmp_path / "run" / "report.html").exists()
    train(settings(world, tmp_path / "run", resume_from_checkpoint="auto"))
    assert metrics(tmp_path / "run") == metrics(whole)
    assert same_weights(tmp_path / "run" / "final", whole / "final")


def test_ctrl_c_while_the_model_loads_stops_at_once_and_evaluates_nothing(
    world: World,
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
            patch.setattr("mmrl.training.trainers.load_policy", loading)
            assert main(words) == 130
    finally:
        signal.signal(signal.SIGINT, handler)
    said = capsys.readouterr().err
    assert said.endswith("stopped\n") and "Traceback" not in said and "images:" not in said
    assert main([*words, "max_steps=1"]) == 0


DEAF = """
import subprocess, sys, time
from mmrl.config import load_config
from mmrl.rl import RLConfig, train

def deaf(samples):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(sys.argv[1], "w") as file:
        file.write(str(child.pid))
    time.sleep(1000)

config = load_config(RLConfig, sys.argv[2:])
config.tasks["shapes"].rewards = [{"name": "deaf", "reward": deaf}]
train(config)
"""
"""A run whose main thread does not come to the end of a reward, with a child in another session."""


@pytest.mark.slow
def test_a_second_ctrl_c_ends_the_process_and_its_children_in_the_middle_of_a_reward(
    world: World, tmp_path: Path
) -> None:
    words = [*command_line(world, tmp_path / "run"), "overlap_rewards=false"]
    command = [sys.executable, "-c", DEAF, str(tmp_path / "child"), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT) as running:
        wait_for(tmp_path / "child", running)
        running.send_signal(signal.SIGINT)
        time.sleep(2 * SAME_REQUEST)
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) == 130
        said = running.communicate()[1].decode()
    assert "SIGINT: stopping after the current" in said
    assert "once more ends at once" in said and said.endswith("\nstopped\n")
    with suppress(psutil.NoSuchProcess):  # nobody may have asked for its status yet
        child = psutil.Process(int((tmp_path / "child").read_text()))
        assert child.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_is_told_waits_at_the_end_of_the_phase_for_those_that_are_not() -> None:
    here = threading.Barrier(2, timeout=20)
    flags: dict[str, bool] = {}
    passed: dict[str, list[int]] = {"told": [], "other": []}

    def process(name: str) -> None:
        def agreed(flag: bool) -> bool:
            flags[name] = flag
            here.wait()
            found = any(flags.values())
            here.wait()
            return found

        request = StopRequest(agreed)
        request.requested = name == "told"
        _request.set(request)  # of this thread
        with suppress(Interrupted):
            with leave_together():
                for n in range(3):
                    check()
                    passed[name].append(n)
            pytest.fail("went on alone")

    threads = [threading.Thread(target=process, args=[name]) for name in passed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == {"told": [], "other": [0, 1, 2]}
