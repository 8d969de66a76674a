"""Which checkpoints a run keeps beside the last ones."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.runtime.interrupt import Interrupted
from mmrl.sft import train
from mmrl.training.best_checkpoint import BestCheckpoint
from scripts.miniature.reconstruction import Reconstruction
from tests.mmrl.supervised_runs import config, same_weights

VALUES = {1: 0.5, 2: 0.2, 3: 0.4, 4: 0.3, 5: 0.6}
"""Of the metric, by step."""


@pytest.fixture(autouse=True)
def evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations whose metric is known."""

    def evaluate(self: Reconstruction, folder: Path, step: int) -> dict[str, float]:
        return {"eval/loss": VALUES[step], "eval/score": VALUES[step]}

    monkeypatch.setattr(Reconstruction, "evaluate", evaluate)


def settings(images: Path, output: Path, **changes: Any) -> Any:
    usual = {"eval_steps": 1, "save_steps": 2, "save_total_limit": 1, "max_steps": 5}
    return config(images, output, **{**usual, "metric_for_best_model": "loss", **changes})


def test_the_best_is_kept_beside_the_last_ones_also_over_a_resume(
    images: Path, tmp_path: Path
) -> None:
    train(settings(images, tmp_path / "run"))
    assert checkpoint_steps(tmp_path / "run" / "checkpoints") == [2, 4]
    train(settings(images, tmp_path / "parts", max_steps=3))
    train(settings(images, tmp_path / "parts", resume_from_checkpoint="auto"))
    assert checkpoint_steps(tmp_path / "parts" / "checkpoints") == [2, 4]
    assert not same_weights(tmp_path / "run" / "final", tmp_path / "run" / "checkpoints" / "2")


def test_a_step_whose_evaluation_is_the_best_gets_a_checkpoint_and_may_be_the_final_model(
    images: Path, tmp_path: Path
) -> None:
    best = {"metric_for_best_model": "eval/score", "max_steps": 4, "load_best_model_at_end": True}
    run = train(settings(images, tmp_path / "run", **best))
    assert checkpoint_steps(run / "checkpoints") == [1, 4], "1 is not due, but the best"
    assert same_weights(run / "final", run / "checkpoints" / "1")
    assert not same_weights(run / "final", run / "checkpoints" / "4")
    assert "best checkpoint so far: step 1, eval/score 0.5" in (run / "train.log").read_text()


def test_a_run_from_another_runs_checkpoint_keeps_it_where_it_stays_the_best_or_is_the_last(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(settings(images, tmp_path / "first", max_steps=4))
    start = first / "checkpoints" / "4"
    best = {"metric_for_best_model": "loss", "load_best_model_at_end": True}
    on = settings(images, tmp_path / "on", resume_from_checkpoint=str(start), **best)
    monkeypatch.setitem(VALUES, 4, 0.1)
    assert same_weights(train(on) / "final", start)
    assert checkpoint_steps(tmp_path / "on" / "checkpoints") == [4]

    def stop(self: Reconstruction, folder: Path, step: int) -> dict[str, float]:
        raise Interrupted

    monkeypatch.setattr(Reconstruction, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        train(dataclasses.replace(on, output_dir=str(tmp_path / "stopped")))
    assert checkpoint_steps(tmp_path / "stopped" / "checkpoints") == [4], "auto goes on from it"


def test_a_metric_that_no_evaluation_has_is_refused_with_those_there_are(
    images: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="'accuracy', which.* It has: eval/loss, eval/score"):
        train(settings(images, tmp_path / "run", metric_for_best_model="accuracy"))


def test_ties_and_values_that_are_not_finite_change_nothing() -> None:
    best = BestCheckpoint("reward", None)
    assert not best.add(0, [{"eval/reward": 9.0}]), "nothing is trained yet"
    assert best.add(1, [{"other": 1.0}, {"eval/reward": 0.5}])
    assert not best.add(2, [{"eval/reward": 0.5}]) and not best.add(3, [{"reward": float("nan")}])
    assert (best.step, best.value) == (1, 0.5)
    lowest = BestCheckpoint("reward", greater_is_better=False)
    assert lowest.add(1, [{"reward": 0.5}]) and lowest.add(2, [{"reward": 0.4}])
