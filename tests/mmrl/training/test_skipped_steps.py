"""Optimiser steps whose gradient is not finite: skipped up to a limit, with nothing changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl import rl, sft
from mmrl.runtime.failures import DivergenceError
from mmrl.training.trainer import Trainer
from scripts.miniature.reconstruction import Reconstruction
from tests.mmrl.runs import metrics, run_config
from tests.mmrl.supervised_runs import config


def state(run: Path, step: int) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / str(step) / "trainer_state.pt")


def break_losses(patch: pytest.MonkeyPatch, *steps: int) -> None:
    """Let the supervised loss of some steps, counted from 1, be no number."""
    original, calls = Reconstruction.loss, []

    def loss(self: Reconstruction, batch: torch.Tensor) -> Any:
        calls.append(1)
        value, parts = original(self, batch)
        return value * (float("nan") if len(calls) in steps else 1.0), parts

    patch.setattr(Reconstruction, "loss", loss)


def test_a_skipped_supervised_step_leaves_everything_but_its_number(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_losses(monkeypatch, 2)
    usual = {"on_nonfinite": "skip", "save_steps": 1, "save_total_limit": None}
    run = sft.train(config(images, tmp_path / "run", **usual))
    before, after, next_one = (state(run, step) for step in (1, 2, 3))
    for key in ("network", "optimizers", "schedules", "ema"):
        torch.testing.assert_close(after[key], before[key], rtol=0, atol=0)
    assert after["schedules"] != next_one["schedules"]
    assert (before["skipped"], after["skipped"], next_one["skipped"]) == (0, 1, 0)
    lines = metrics(run)
    assert [line["skipped_steps"] for line in lines] == [0, 1, 0, 0]
    assert "loss" not in lines[1] and "loss" in lines[2]
    assert "grad_norm is nan; the loss is not finite for micro-batch 1" in (
        (run / "train.log").read_text()
    )


def test_more_skipped_steps_in_a_row_than_allowed_stop_the_run(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"on_nonfinite": "skip", "max_skipped_steps": 1, "max_steps": 6}
    with monkeypatch.context() as patch:
        break_losses(patch, 1, 3, 5)
        sft.train(config(images, tmp_path / "single", **usual))
    break_losses(monkeypatch, 2, 4, 5)
    with pytest.raises(DivergenceError, match="gradient of step 5 is nan after 1 that were skip"):
        sft.train(config(images, tmp_path / "run", **usual))


@pytest.mark.parametrize("wish", ["stop", "skip"])
def test_a_gradient_of_rollouts_that_is_not_finite_is_logged_with_its_prompts(
    wish: str, world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, prompts = Trainer._loss, []

    def loss(self: Trainer, part: Any) -> Any:
        value, shares = original(self, part)
        broken = self.step == 1 and part.m == 1
        if broken:
            prompts.append(part.item.batch.prompts[part.rows.start].id)
            shares["loss"] = shares["loss"] * torch.nan
        return value * (torch.nan if broken else 1.0), shares

    monkeypatch.setattr(Trainer, "_loss", loss)
    run = tmp_path / "run"
    settings = run_config(world, run, max_steps=2, save_steps=1, on_nonfinite=wish)
    if wish == "stop":
        with pytest.raises(DivergenceError, match="the loss is not finite for .*on_nonfinite=skip"):
            rl.train(settings)
    else:
        rl.train(settings)
        before, after = state(run, 1), state(run, 2)
        for key in ("trained", "optimizer", "schedule"):
            torch.testing.assert_close(after[key], before[key], rtol=0, atol=0)
        assert [line["skipped_steps"] for line in metrics(run)] == [0, 2]
    log = (run / "train.log").read_text()
    assert prompts and f"not finite for {prompts[0]} (" in log
