"""The supervised loop on a tiny tokenizer: exact resume, batches, what a run leaves behind."""

from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.models import load_vq
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.sft import SFTConfig, train
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


def test_a_run_taken_up_at_an_earlier_step_keeps_what_it_writes(
    images: Path, tmp_path: Path
) -> None:
    train(config(images, tmp_path / "run", max_steps=6, save_total_limit=None))
    second = str(tmp_path / "run" / "checkpoints" / "2")
    changes = {"save_steps": 1, "save_total_limit": 2}
    train(config(images, tmp_path / "run", resume_from_checkpoint=second, **changes))
    assert checkpoint_steps(tmp_path / "run" / "checkpoints") == [3, 4]


def test_training_lowers_the_loss_and_writes_the_run_directory(
    images: Path, tmp_path: Path
) -> None:
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
        options = {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": accumulation,
            "objective": loss,
        }
        train(config(images, tmp_path / name, max_steps=1, warmup_steps=0, **options))
    one, three = (metrics(tmp_path / name)[0] for name in ("one", "three"))
    assert one["loss"] == pytest.approx(three["loss"], rel=1e-5)
    assert one["grad_norm"] == pytest.approx(three["grad_norm"], rel=1e-4)
