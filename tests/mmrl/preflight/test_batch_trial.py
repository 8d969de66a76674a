"""Batch sizes that a run finds itself: the largest that fit, without a trace."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl import rl
from mmrl.config import ConfigError
from mmrl.preflight import batch_trial
from mmrl.preflight.batch_trial import FILE, settle_batch_sizes
from mmrl.rollouts.tasks import Task
from mmrl.run.run_directory import RunDirectory
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import metrics, run_config, same_weights, trainer_of

AUTO = {"per_device_train_batch_size": "auto", "task": {"rollout_batch_size": "auto"}}


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has room for 4 rollouts when sampling and 2 in a micro-batch."""

    def sampling(task: Task, trainer: Trainer) -> Any:
        return refusing(4, original(task, trainer))

    def gradient(self: Trainer, task: Task, batch: Any) -> None:
        refusing(2, lambda _: try_gradient(self, task, batch))(len(batch))

    original, try_gradient = batch_trial._rollout_trial, Trainer.try_gradient
    monkeypatch.setattr(batch_trial, "_rollout_trial", sampling)
    monkeypatch.setattr(Trainer, "try_gradient", gradient)


@pytest.fixture
def run(world: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """A run that finds its sizes: its `trainer`, its `task`, and `settle`, which finds them."""
    config = run_config(world, tmp_path, **AUTO)
    trainer, task = trainer_of(config), Task("shapes", config.tasks["shapes"])
    folder = RunDirectory(tmp_path)
    settle = partial(settle_batch_sizes, config, {"shapes": task}, trainer, folder)
    return SimpleNamespace(trainer=trainer, task=task, settle=settle)


def refusing(most: int, trial: Any) -> Any:
    """A trial that runs out of memory in the middle above a size."""

    def limited_trial(size: int) -> None:
        trial(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    return limited_trial


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1}])
def test_a_run_that_finds_its_sizes_equals_the_run_with_these_sizes(
    world: SimpleNamespace, tmp_path: Path, limited: None, lora: dict | None
) -> None:
    rest: dict[str, Any] = {"algorithm": {"beta": 0.1}, "lora": lora, "ema_decay": 0.5}
    rl.train(run_config(world, tmp_path / "auto", **AUTO, **rest))
    found = json.loads((tmp_path / "auto" / FILE).read_text())
    sizes = {"per_device_train_batch_size": 2, "rollout_batch_size": {"shapes": 4}}
    assert found == {"processes": 1, **sizes}
    given = {"per_device_train_batch_size": 2, "task": {"rollout_batch_size": 4}}
    rl.train(run_config(world, tmp_path / "given", **given, **rest))
    assert metrics(tmp_path / "auto") == metrics(tmp_path / "given")
    assert same_weights(tmp_path / "auto" / "final", tmp_path / "given" / "final")


def test_a_trial_leaves_weights_moments_gradients_and_draws_as_they_were(
    run: SimpleNamespace, limited: None
) -> None:
    before = {n: p.detach().clone() for n, p in run.trainer.trained.named_parameters()}
    drawn = torch.get_rng_state()
    run.settle()
    assert run.trainer.micro_batch_size == 2 and run.task.config.rollout_batch_size == 4
    for name, parameter in run.trainer.trained.named_parameters():
        assert torch.equal(parameter, before[name]) and parameter.grad is None
    assert not run.trainer.optimizer.state and run.trainer.step == 0
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_resumed_run_takes_the_sizes_it_found_without_a_trial(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"processes": 1, "rollout_batch_size": {"shapes": 3}}
    (tmp_path / FILE).write_text(json.dumps({**known, "per_device_train_batch_size": 1}))
    monkeypatch.setattr(batch_trial, "_find", lambda *_: pytest.fail("a trial"))
    run.trainer.step = 2
    run.settle()
    assert run.trainer.micro_batch_size == 1 and run.task.config.rollout_batch_size == 3


def test_a_cpu_is_filled_by_the_estimate_alone(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = SimpleNamespace(available=1, total=2**34)
    monkeypatch.setattr(batch_trial.psutil, "virtual_memory", lambda: memory)
    run.settle()
    assert run.trainer.micro_batch_size == 1 and run.task.config.rollout_batch_size == 1
    memory.available = 2**40
    run.task.config.rollout_batch_size = "auto"
    run.settle()
    assert run.trainer.micro_batch_size == 8 and run.task.config.rollout_batch_size == 8


def test_where_nothing_fits_the_setting_is_named(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_trial, "_rollout_trial", lambda *_: refusing(0, lambda _: None))
    with pytest.raises(ConfigError, match="tasks.shapes.rollout_batch_size is 'auto'"):
        run.settle()


@pytest.mark.parametrize("value", ["largest", 0])
def test_other_words_and_no_rollouts_are_refused(
    world: SimpleNamespace, tmp_path: Path, value: Any
) -> None:
    with pytest.raises(ConfigError, match="per_device_train_batch_size .* null, auto or at least"):
        run_config(world, tmp_path, per_device_train_batch_size=value)
    with pytest.raises(ConfigError, match="rollout_batch_size .* auto or at least 1"):
        run_config(world, tmp_path, task={"rollout_batch_size": value})
