"""Runs that a rule ends: by time, by a metric of the steps."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.rl_config import RLConfig
from mmrl.run.checkpoint import checkpoint_steps
from mmrl.sft import main, train
from mmrl.training.stop_rules import StoppedByRule, find_collapse
from tests.mmrl.runs import run_config
from tests.mmrl.supervised_runs import NETWORK, config, metrics, same_weights


def lines(key: str, *values: float | None) -> list[dict[str, Any]]:
    return [{"step": n, "learning_rate": 1, key: value} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rule", "key", "values", "value"),
    [
        ({"max_kl": 2}, "kl", (1, 1, 3), 2),
        ({"max_kl": 2}, "red/kl", (1, None, 2, 2), 2),
        ({"max_kl": 2}, "kl", (9, 1, 2.5), None),
        ({"max_kl": 2}, "kl", (9,), None),
        ({"max_kl": 2}, "approx_kl", (9, 9), None),
        ({"min_reward_share": 0.5}, "reward", (0.2, 0.9, 0.9, 0.5, 0.3), 0.4),
        ({"min_reward_share": 0.5}, "reward", (0.2, 0.9, 0.9, 0.5, 0.4), None),
        ({"min_reward_share": 0.5}, "reward", (-1, -1, -9, -9), None),
        ({"max_frac_reward_zero_std": 1}, "frac_reward_zero_std", (0.5, 1, 1), 1),
        ({"max_frac_reward_zero_std": 1}, "frac_reward_zero_std", (1, 1, 0.9), None),
    ],
)
def test_rules_compare_the_mean_of_the_last_lines(
    rule: dict[str, float], key: str, values: tuple[float | None, ...], value: float | None
) -> None:
    usual = {"max_kl": None, "min_reward_share": None, "max_frac_reward_zero_std": None}
    settings: Any = SimpleNamespace(stop_window=2, **{**usual, **rule})
    found = [*find_collapse(settings, lines(key, *values))]
    assert [(stop.key, stop.value) for stop in found] == ([] if value is None else [(key, value)])
    for stop in found:
        [(name, limit)] = rule.items()
        assert f"{name}={limit:g}: {key} is {value:.4g}" in str(stop)
        assert stop.status == 76


def test_a_run_out_of_time_leaves_a_checkpoint_and_goes_on_when_started_again(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    usual = {"save_steps": 0, "max_hours": 1e-9}
    with pytest.raises(StoppedByRule, match="stopped at step 1: max_hours=1e-09: hours since"):
        train(config(images, run, **usual))
    assert checkpoint_steps(run / "checkpoints") == [1] and not (run / "final").exists()
    about = json.loads((run / "stopped.json").read_text())
    assert (about["rule"], about["step"], about["status"]) == ("max_hours", 1, 75)
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


def test_a_last_step_out_of_time_is_the_end(images: Path, tmp_path: Path) -> None:
    assert train(config(images, tmp_path / "run", max_steps=1, max_hours=1e-9))
    assert (tmp_path / "run" / "final").exists()


def test_a_reward_without_a_spread_ends_a_run_with_a_status_of_its_own(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmrl.rl import train as reinforce

    run = tmp_path / "run"
    task = {"rewards": [{"name": "same", "reward": lambda samples: [1.0] * len(samples)}]}
    rule = {"max_frac_reward_zero_std": 1.0, "stop_window": 2, "save_steps": 0}
    with pytest.raises(StoppedByRule) as stopped:
        reinforce(run_config(world, run, task=task, **rule))
    assert stopped.value.status == 76
    assert checkpoint_steps(run / "checkpoints") == [2]
    assert json.loads((run / "stopped.json").read_text())["key"] == "frac_reward_zero_std"
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert StoppedByRule(stopped_by(), 2).status == 0, "a launcher would end the other processes"


def stopped_by() -> Any:
    return SimpleNamespace(status=76)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_hours": 0}, "max_hours is 0"),
        ({"max_kl": 0.1, "algorithm": {"beta": 0.0}}, "max_kl is 0.1.*Set beta"),
        ({"min_reward_share": 2.0}, "min_reward_share is 2.0"),
        ({"stop_window": 0}, "stop_window is 0"),
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
        run: RLConfig = run_config(world, tmp_path, **change)
        assert run
