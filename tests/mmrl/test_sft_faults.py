"""What a supervised run does with bad input, a full disk and Ctrl-C."""

import errno
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.run import checkpoint
from mmrl.run.checkpoint import CheckpointError, checkpoint_steps
from mmrl.runtime.failures import DivergenceError
from mmrl.sft import main, train
from scripts.miniature.reconstruction import Reconstruction
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.supervised_runs import config

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("phase", "left_at"), [("loss", 1), ("evaluate", 2)])
def test_ctrl_c_leaves_the_micro_batch_and_the_run_resumes_exactly(
    phase: str, left_at: int, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = getattr(Reconstruction, phase), []
    changes = {"save_steps": 0, "eval_steps": 2, "gradient_accumulation_steps": 2}
    changes |= {"ema_decay": 0.5, "logging_steps": 3}

    def interrupting(self: Reconstruction, *arguments: Any) -> Any:
        calls.append(1)
        if phase == "evaluate" or len(calls) == 3:  # the first micro-batch of the second step
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Reconstruction, phase, interrupting)
        with pytest.raises(KeyboardInterrupt):
            train(config(images, tmp_path / "run", **changes))
    assert len(calls) == (3 if phase == "loss" else 1)
    assert checkpoint_steps(tmp_path / "run" / "checkpoints") == [left_at]
    train(config(images, tmp_path / "run", resume_from_checkpoint="auto", **changes))
    train(config(images, tmp_path / "whole", **changes))
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "run" / "final", tmp_path / "whole" / "final")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["objective.name=maskd"], "Did you mean 'masked'?"),
        (["objective.name=scripts.miniature:VQ", "objective.pixel_los=l1"], "pixel_loss"),
        (
            ["objective.name=scripts.miniature:VQ", "objective.data=nowhere.parquet"],
            "nowhere.parquet",
        ),
        (["resume_from_checkpoint=nowhere", "objective.name=scripts.miniature:VQ"], "nowhere"),
        (["config=configs/sft/nothing.yaml"], "d1_s1k.yaml"),
    ],
)
def test_a_bad_configuration_is_one_clear_line(
    words: list[str], named: str, tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = [] if any("objective.data" in word for word in words) else [f"objective.data={images}"]
    output = [] if words[0].startswith("config=") else [f"output_dir={tmp_path / 'run'}"]
    assert main([*usual, *output, *words]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ") and named in message


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_checkpoint_beyond_the_last_step_is_refused(
    images: Path, tmp_path: Path, dry_run: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(config(images, tmp_path / "run", max_steps=2))
    words = [f"config={run / 'config.yaml'}", "max_steps=1", f"dry_run={dry_run}"]
    assert main([*words, "resume_from_checkpoint=auto"]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "max_steps is 1; it must be at least 2, the step of '" in message


def test_a_loss_that_is_not_finite_stops_the_run(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Reconstruction.loss

    def loss(self: Reconstruction, batch: torch.Tensor) -> Any:
        value, parts = original(self, batch)
        return value * float("nan"), parts

    monkeypatch.setattr(Reconstruction, "loss", loss)
    with pytest.raises(DivergenceError, match="learning_rate"):
        train(config(images, tmp_path / "run"))


def blocking(patch: pytest.MonkeyPatch, step: int) -> threading.Event:
    """Let the background writing of one checkpoint wait until the event is set."""
    released, original = threading.Event(), checkpoint._flush

    def flush(path: Path) -> None:
        if f"{step}.partial" in path.parts:
            assert threading.current_thread() is not threading.main_thread()
            assert released.wait(timeout=20)
        original(path)

    patch.setattr(checkpoint, "_flush", flush)
    return released


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_waits_for_it(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, seen = Reconstruction.loss, []
    run = tmp_path / "run"

    def loss(self: Reconstruction, batch: torch.Tensor) -> Any:
        seen.append([path.name for path in sorted((run / "checkpoints").iterdir())])
        if len(seen) == 4:  # steps 3 and 4 are computed beside it
            released.set()
        return original(self, batch)

    with monkeypatch.context() as patch:
        released = blocking(patch, 2)
        patch.setattr(Reconstruction, "loss", loss)
        train(config(images, run))
    assert seen[2:] == [["2.partial"], ["2.partial"]]
    assert checkpoint_steps(run / "checkpoints") == [2, 4]
    train(config(images, tmp_path / "waiting", async_save=False))
    for step in ("2", "4"):
        one, other = (tmp_path / name / "checkpoints" / step for name in ("run", "waiting"))
        assert same_weights(one, other)
        left, right = (torch.load(each / "trainer_state.pt") for each in (one, other))
        torch.testing.assert_close(left["network"], right["network"], rtol=0, atol=0)
        torch.testing.assert_close(left["optimizers"], right["optimizers"], rtol=0, atol=0)


def test_an_error_of_the_background_ends_the_run_after_the_next_step(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = checkpoint._flush

    def flush(path: Path) -> None:
        if "4.partial" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path)

    monkeypatch.setattr(checkpoint, "_flush", flush)
    with pytest.raises(CheckpointError, match="checkpoints/4' failed: .*No space left"):
        train(config(images, tmp_path / "run"))
    entries = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert entries == ["2"]
    assert not (tmp_path / "run" / "final").exists()


def test_sigusr1_writes_a_checkpoint_after_the_step_and_the_run_goes_on(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Reconstruction.loss, []

    def loss(self: Reconstruction, batch: torch.Tensor) -> Any:
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, batch)

    monkeypatch.setattr(Reconstruction, "loss", loss)
    before = signal.getsignal(signal.SIGUSR1)
    train(config(images, tmp_path / "run", save_steps=0))
    assert signal.getsignal(signal.SIGUSR1) is before, "programs inherit a signal that is ignored"
    assert checkpoint_steps(tmp_path / "run" / "checkpoints") == [3]
    assert len(calls) == 4 and (tmp_path / "run" / "final").exists()
    assert "SIGUSR1: a checkpoint" in (tmp_path / "run" / "train.log").read_text()
