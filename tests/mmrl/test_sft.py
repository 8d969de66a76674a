"""The supervised loop on a tiny tokenizer: exact resume, batches, what a run leaves behind."""

import errno
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import load_config
from mmrl.models import load_vq
from mmrl.run import checkpoint
from mmrl.run.checkpoint import CheckpointError, checkpoint_steps
from mmrl.runtime.failures import DivergenceError
from mmrl.sft import SFTConfig, main, train
from scripts.miniature.reconstruction import Reconstruction
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.supervised_runs import config, kill_in_checkpoint, tokenizer


def test_two_steps_a_kill_and_two_more_equal_four_steps(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"logging_steps": 3, "optimizer": "muon", "bf16": True}
    assert train(config(images, tmp_path / "whole", **options))
    with monkeypatch.context() as patch:
        kill_in_checkpoint(patch, 4, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            train(config(images, tmp_path / "parts", **options))
    assert checkpoint_steps(tmp_path / "parts" / "checkpoints") == [2]
    assert train(config(images, tmp_path / "parts", resume_from_checkpoint="auto", **options))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "parts" / "final", tmp_path / "whole" / "final")


def test_a_run_resumed_at_an_earlier_step_keeps_its_files(images: Path, tmp_path: Path) -> None:
    run = train(config(images, tmp_path / "run", max_steps=6, save_total_limit=None, eval_steps=1))
    changes = {"save_steps": 1, "save_total_limit": 2, "eval_steps": 4}
    train(config(images, run, resume_from_checkpoint=str(run / "checkpoints" / "2"), **changes))
    assert checkpoint_steps(run / "checkpoints") == [3, 4]
    assert sorted(int(path.stem[-6:]) for path in (run / "samples").iterdir()) == [1, 2, 4]


def test_training_lowers_the_loss_and_writes_a_run_directory(images: Path, tmp_path: Path) -> None:
    train(config(images, tmp_path / "run", max_steps=30, save_total_limit=1, eval_steps=15))
    lines = metrics(tmp_path / "run")
    losses = [line["loss/pixel"] for line in lines if "loss/pixel" in line]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert [line["step"] for line in lines if "eval/pixel_l1" in line] == [15, 30]
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["30"]
    assert len(list((tmp_path / "run" / "samples").glob("*.png"))) == 2
    assert "torch: " in (tmp_path / "run" / "env.txt").read_text()
    assert "finished" in (tmp_path / "run" / "train.log").read_text()
    resolved = load_config(SFTConfig, [f"config={tmp_path / 'run' / 'config.yaml'}"])
    assert resolved.max_steps == 30
    assert load_vq(tmp_path / "run" / "final").codebook_size == 8
    assert load_vq(tmp_path / "run" / "checkpoints" / "30").codebook_size == 8


def test_the_last_step_is_logged_and_a_finished_run_keeps_its_lines(
    images: Path, tmp_path: Path
) -> None:
    run = train(config(images, tmp_path / "run", logging_steps=5))
    assert [line["step"] for line in metrics(run)] == [4]
    train(config(images, run, logging_steps=5, resume_from_checkpoint="auto"))
    assert [line["step"] for line in metrics(run)] == [4]


def test_micro_batches_of_a_step_equal_one_large_batch(images: Path, tmp_path: Path) -> None:
    loss = tokenizer(images, entropy_weight=0.0, save_dtype="float32")
    for name, size, accumulation in (("one", 6, 1), ("three", 2, 3)):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}
        options |= {"objective": loss, "max_steps": 1, "warmup_steps": 0}
        train(config(images, tmp_path / name, **options))
    one, three = (metrics(tmp_path / name)[0] for name in ("one", "three"))
    assert one["loss"] == pytest.approx(three["loss"], rel=1e-5)
    assert one["grad_norm"] == pytest.approx(three["grad_norm"], rel=1e-4)


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
        (["resume_from_checkpoint=nowhere", "objective.name=scripts.miniature:VQ"], "nowhere"),
        (["config=configs/sft/nothing.yaml"], "d1_s1k.yaml"),
    ],
)
def test_a_bad_configuration_is_one_clear_line(
    words: list[str], named: str, tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = [] if words[0].startswith("config=") else [f"output_dir={tmp_path / 'run'}"]
    assert main([f"objective.data={images}", *output, *words]) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ") and named in message


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
    original, seen, run = Reconstruction.loss, [], tmp_path / "run"

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
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["2"]
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
