"""Batch sizes that a run finds itself: the largest that fit, without a trace."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl import rl
from mmrl.config import ConfigError
from mmrl.planning import batch_sizes
from mmrl.planning.batch_sizes import FILE, settle_batch_sizes
from mmrl.planning.network_memory import Needs
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.run.run_directory import RunDirectory
from tests.mmrl.runs import metrics, run_config, same_weights, trainer_of

AUTO = {"per_device_train_batch_size": "auto", "task": {"rollout_batch_size": "auto"}}


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has room for 4 rollouts when sampling and 2 in a micro-batch."""

    def estimated(config: RLConfig, raw: Any, tasks: list[Task], _: Any) -> Needs:
        [rows], micro = {task.config.rollouts_at_once for task in tasks}, config.micro_batch_size(1)
        return Needs({"sampling": 20.0 * rows, "update": 40.0 * micro})

    memory = SimpleNamespace(available=100, total=2**34)
    monkeypatch.setattr(batch_sizes.psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(batch_sizes, "estimate", estimated)


@pytest.fixture
def run(world: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """A run that finds its sizes: its `trainer`, its `task`, and `settle`, which finds them."""
    config = run_config(world, tmp_path, **AUTO)
    trainer, task = trainer_of(config), Task("shapes", config.tasks["shapes"])
    folder = RunDirectory(tmp_path)
    settle = partial(settle_batch_sizes, config, {"shapes": task}, trainer, folder)
    return SimpleNamespace(trainer=trainer, task=task, settle=settle)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1}])
def test_a_run_that_finds_its_sizes_equals_the_run_with_these_sizes(
    world: SimpleNamespace, tmp_path: Path, limited: None, lora: dict | None
) -> None:
    rest: dict[str, Any] = {"algorithm": {"beta": 0.1}, "lora": lora}
    rl.train(run_config(world, tmp_path / "auto", **AUTO, **rest))
    found = json.loads((tmp_path / "auto" / FILE).read_text())
    sizes = {"per_device_train_batch_size": 2, "rollout_batch_size": {"shapes": 4}}
    assert found == {"processes": 1, **sizes}
    given = {"per_device_train_batch_size": 2, "task": {"rollout_batch_size": 4}}
    rl.train(run_config(world, tmp_path / "given", **given, **rest))
    assert metrics(tmp_path / "auto") == metrics(tmp_path / "given")
    assert same_weights(tmp_path / "auto" / "final", tmp_path / "given" / "final")


def test_a_resumed_run_takes_the_sizes_it_found_without_a_search(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"processes": 1, "rollout_batch_size": {"shapes": 3}}
    (tmp_path / FILE).write_text(json.dumps({**known, "per_device_train_batch_size": 1}))
    monkeypatch.setattr(batch_sizes, "_find", lambda *_: pytest.fail("a search"))
    run.trainer.step = 2
    run.settle()
    assert run.trainer.micro_batch_size == 1 and run.task.config.rollout_batch_size == 3


def test_the_largest_sizes_that_are_estimated_to_fit_are_taken_and_1_where_none_does(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SimpleNamespace(available=1, total=2**34)
    monkeypatch.setattr(batch_sizes.psutil, "virtual_memory", lambda: memory)
    run.settle()
    assert run.trainer.micro_batch_size == 1 and run.task.config.rollout_batch_size == 1
    memory.available = 2**40
    run.task.config.rollout_batch_size = "auto"
    run.settle()
    assert run.trainer.micro_batch_size == 8 and run.task.config.rollout_batch_size == 8


@pytest.mark.parametrize("value", ["largest", 0])
def test_other_words_and_no_rollouts_are_refused(
    world: SimpleNamespace, tmp_path: Path, value: Any
) -> None:
    with pytest.raises(ConfigError, match="per_device_train_batch_size .* null, auto or at least"):
        run_config(world, tmp_path, per_device_train_batch_size=value)
    with pytest.raises(ConfigError, match="rollout_batch_size .* auto or at least 1"):
        run_config(world, tmp_path, task={"rollout_batch_size": value})
