"""`stop_on`: a run ends where a held-out score no longer improves, and says so."""

import math
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.run.stop_rule import StopConfig, find_standing
from mmrl.types import Sample
from tests.mmrl.runs import World, metrics, run_config
from tests.mmrl.same_runs import equal_metrics

METRIC = "eval/shapes/steady"


def steady(samples: list[Sample]) -> list[float]:
    """A score that no training improves."""
    return [0.5] * len(samples)


def stopping(world: World, output: Path, **changes: Any) -> RLConfig:
    """A run of six steps at most, which ends after two evaluations without an improvement."""
    held_out = {"name": "steady", "reward": steady}
    rule = StopConfig(metric=METRIC, patience=2, **changes.pop("rule", {}))
    task = {"eval_prompts": world.held_out, "eval_limit": 2, "eval_rewards": [held_out]}
    values = {"task": task, "stop_on": rule, "eval_steps": 1, "save_steps": 1, "max_steps": 6}
    return run_config(world, output, **{**values, **changes})


@pytest.mark.parametrize(
    ("mode", "min_delta", "values", "wanted"),
    [
        ("max", 0.0, [0.2, 0.3, 0.3, 0.1], (1, 0.3, 2)),
        ("min", 0.0, [0.2, 0.3, 0.1, 0.1], (2, 0.1, 1)),
        ("max", 0.2, [0.2, 0.3, 0.35, 0.5], (3, 0.5, 0)),  # against the best, not the last
        ("max", 0.0, [None, -0.2, math.nan, -0.3], (1, -0.2, 1)),
        ("max", 0.0, [], (-1, 0.0, 0)),
    ],
)
def test_a_rule_counts_evaluations_since_the_best(
    mode: Any, min_delta: float, values: list[float | None], wanted: tuple[int, float, int]
) -> None:
    rule = StopConfig(metric=METRIC, patience=2, min_delta=min_delta, mode=mode)
    lines = [{"step": n, METRIC: value} for n, value in enumerate(values)]
    training = {"step": 1, "reward": 9.0}
    found = find_standing(rule, [*lines, training])
    assert found == wanted
    assert bool(found.describe_end(rule)) == (wanted[2] == 2)


def test_a_run_ends_says_why_and_keeps_the_best_checkpoint(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = stopping(world, tmp_path / "run", logging_steps=4, save_total_limit=1)
    config.stop_on.patience = 3  # type: ignore[union-attr]
    run = train(config)
    lines = metrics(run)
    assert [line["step"] for line in lines if METRIC in line] == [0, 1, 2, 3]
    assert lines[-1]["step"] == 3 and "reward" in lines[-1], "of the steps since the last line"
    assert (run / "final").is_dir() and checkpoint_steps(run / "checkpoints") == [3]
    reason = f"stop_on: {METRIC} was best, 0.5, at step 0, and has not improved"
    assert reason in (run / "train.log").read_text()
    page = (run / "report.html").read_text()
    assert f"Ended by {reason}" in page


def test_a_resumed_run_ends_where_it_would_have(world: World, tmp_path: Path) -> None:
    whole = train(stopping(world, tmp_path / "whole"))
    assert metrics(whole)[-1]["step"] == 2
    parts = train(stopping(world, tmp_path / "parts", max_steps=1))
    again = {"resume_from_checkpoint": "auto"}
    assert train(stopping(world, parts, **again)) == parts
    equal_metrics(whole, parts)
    before = (parts / "metrics.jsonl").read_text()
    train(stopping(world, parts, **again))  # an ended run makes no step more
    assert (parts / "metrics.jsonl").read_text() == before
    train(stopping(world, parts, **again, stop_on=None, max_steps=3))
    assert metrics(parts)[-1]["step"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop_on": StopConfig(metric="eval/shapes/redness")}, METRIC),
        ({"stop_on": StopConfig(metric="reward")}, METRIC),
        ({"eval_steps": 0}, "eval_steps is 0; it must be above 0 with stop_on"),
    ],
)
def test_a_metric_that_no_evaluation_makes_is_refused(
    world: World, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        stopping(world, tmp_path, **changes)
