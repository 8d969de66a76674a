"""Runs that `max_hours` ends."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.sft import main, train
from mmrl.training.time_limit import OutOfTime
from tests.mmrl.runs import run_config
from tests.mmrl.supervised_runs import NETWORK, config, metrics, same_weights


def test_a_run_out_of_time_leaves_a_checkpoint_and_goes_on_when_started_again(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(OutOfTime, match="stopped at step 1: max_hours is 1e-09"):
        train(config(images, run, save_steps=0, max_hours=1e-9))
    assert checkpoint_steps(run / "checkpoints") == [1] and not (run / "final").exists()
    about = json.loads((run / "stopped.json").read_text())
    assert about == {"rule": "max_hours", "step": 1, "status": 75}
    assert "stopped by max_hours" in (run / "train.log").read_text()
    train(config(images, run, save_steps=0, max_hours=1, resume_from_checkpoint="auto"))
    assert not (run / "stopped.json").exists()
    train(config(images, tmp_path / "whole", save_steps=0))
    assert metrics(run) == metrics(tmp_path / "whole")
    assert same_weights(run / "final", tmp_path / "whole" / "final")
    words = [f"objective.data={images}", f"output_dir={tmp_path / 'words'}", "max_hours=1e-9"]
    words += ["objective.name=scripts.miniature:VQ", "objective.image_size=8"]
    words += [f"objective.network.{key}={value}" for key, value in NETWORK.items()]
    assert main(words) == 75
    assert "stopped at step 1: max_hours" in capsys.readouterr().err


def test_a_launcher_would_end_the_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert OutOfTime(1.0, 2).status == 0


def test_a_last_step_out_of_time_is_the_end(images: Path, tmp_path: Path) -> None:
    assert train(config(images, tmp_path / "run", max_steps=1, max_hours=1e-9))
    assert (tmp_path / "run" / "final").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_hours": 0}, "max_hours is 0"),
        ({"metric_for_best_model": "reward"}, "metric_for_best_model is 'reward'.*eval_steps"),
        ({"load_best_model_at_end": True}, "load_best_model_at_end .*metric_for_best_model"),
        ({"max_skipped_steps": 0}, "max_skipped_steps is 0"),
        ({"ddp_timeout": 0}, "ddp_timeout is 0"),
    ],
)
def test_impossible_rules_are_refused(
    change: dict[str, Any], said: str, world: SimpleNamespace, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        run_config(world, tmp_path, **change)
