"""Updates with a value model: where it starts, what it learns, what it costs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import LORA, World, rollouts, run_config, trainer_of
from tests.mmrl.training.test_mini_batches import weights

SAMPLER = SamplerConfig(name="maskgit", steps=4)
ADAPTERS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])


def method(valued: bool = True, **value: Any) -> dict:
    """Slices of one step, one inner iteration, with or without a value model."""
    settings = value if valued else None
    return {"name": "trace_rl", "slice_size": 1, "num_iterations": 1, "value": settings}


def config_of(world: World, output: Path, algorithm: dict, **changes: Any) -> RLConfig:
    task = {"sampler": SAMPLER, **changes.pop("task", {})}
    return run_config(world, output, algorithm=algorithm, task=task, **changes)


def prepared(config: RLConfig) -> tuple[Trainer, dict[str, tuple[Task, RolloutBatch]]]:
    """A trainer and the rollouts of its first step, with advantages that differ."""
    trainer = trainer_of(config)
    work = rollouts(config, trainer)
    for _, batch in work.values():
        batch.advantages = torch.linspace(-1, 1, len(batch))
    return trainer, work


def value_weights(trainer: Trainer) -> dict[str, Tensor]:
    assert trainer.value is not None
    return {n: p.detach().clone() for n, p in trainer.value.named_parameters()}


@ADAPTERS
def test_before_it_has_learned_anything_it_changes_nothing(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    results = []
    for valued in (False, True):
        changes = {"lora": lora, "max_grad_norm": 0.0, "adam_epsilon": 1e-3}
        config = config_of(world, tmp_path, method(valued), **changes)
        trainer, work = prepared(config)
        results.append((trainer, trainer.update(work)))
    (plain, expected), (trainer, values) = results
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(trainer)[name], tensor, atol=1e-8, rtol=1e-5)
    assert values["policy_loss"] == pytest.approx(expected["policy_loss"], abs=1e-7)
    assert values["ratio"] == 1.0 and values["val/mean"] == values["val/clipfrac_avg"] == 0
    half_squares = float(work["shapes"][1].advantages.square().mean() / 2)
    assert values["loss/value_avg"] == pytest.approx(half_squares, rel=1e-5)
    assert plain.value is None and not {"loss/value_avg", "val/mean"} & expected.keys()


@ADAPTERS
def test_on_fixed_rollouts_the_value_loss_falls_and_with_it_the_advantages(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    value = {"learning_rate_scale": 5.0, "cliprange_value": 10.0}
    algorithm = method(**value)
    config = config_of(world, tmp_path, algorithm, lora=lora, learning_rate=2e-3)
    trainer, work = prepared(config)
    start = value_weights(trainer)
    losses = [trainer.update(work)["loss/value_avg"] for _ in range(12)]
    assert losses[-1] < 0.9 * losses[0]
    moved = {n for n, tensor in value_weights(trainer).items() if not torch.equal(tensor, start[n])}
    assert any("weight" in name for name in moved)
    frozen = {n for n in start if lora is not None and ".lora_" not in n and n != "head.weight"}
    assert moved == start.keys() - frozen
    item = trainer._prepare(*work["shapes"], 0)
    left = torch.cat([found.advantages for found in item.estimates], 1)[item.passes.scored]
    assert float(left.square().mean()) / 2 < 0.95 * losses[0]


def test_a_copy_is_the_policys_twin_and_on_the_same_weights_where_they_are_frozen(
    world: World, tmp_path: Path
) -> None:
    for changes in ({}, {"lora": LORA}, {"model": {"modules_to_train": ["blocks.0.attn"]}}):
        config = config_of(world, tmp_path, method(), **changes)
        trainer = trainer_of(config)
        own, policy = value_weights(trainer), trainer.policy.network.state_dict()
        assert not own.pop("head.weight").any()
        twins = {name.removeprefix("backbone."): tensor for name, tensor in own.items()}
        assert twins.keys() == policy.keys() - {"head.weight"}
        assert all(torch.equal(tensor, policy[name]) for name, tensor in twins.items())
        assert trainer.value is not None
        places = {p.data_ptr() for p in trainer.value.parameters() if not p.requires_grad}
        shared = {p.data_ptr() for p in trainer.trained.parameters() if not p.requires_grad}
        assert places <= shared and bool(places) == bool(changes)


@ADAPTERS
def test_the_size_of_micro_batches_changes_nothing_but_rounding(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    algorithm = {**method(lam=0.7, gamma=0.9), "num_iterations": 2}
    results = {}
    for size in (8, 2, 1):
        config = config_of(
            world,
            tmp_path,
            algorithm,
            lora=lora,
            per_device_train_batch_size=size,
            adam_epsilon=1e-3,
        )
        trainer, work = prepared(config)
        work["shapes"][1].rewards[3] = torch.nan
        trainer.update(work)
        values = trainer.update(work)
        results[size] = {**weights(trainer), **value_weights(trainer)}, values
    for size in (2, 1):
        for name, tensor in results[8][0].items():
            torch.testing.assert_close(results[size][0][name], tensor, atol=3e-6, rtol=0)
        for key in results[8][1].keys() - {"time/score_s", "time/update_s"}:
            assert results[size][1][key] == pytest.approx(results[8][1][key], rel=1e-3, abs=1e-5)
    assert results[8][1]["val/mean"] != 0 and results[8][1]["approx_kl"] > 0


def test_a_rollout_that_no_reward_applies_to_teaches_neither_policy_nor_values(
    world: World, tmp_path: Path
) -> None:
    config = config_of(world, tmp_path, {**method(), "beta": 0.0})
    trainer, work = prepared(config)
    trainer.update(work)
    _, batch = work["shapes"]
    batch.rewards[:] = torch.nan
    values = trainer.update(work)
    assert values["grad_norm"] == 0 == values.get("val/grad_norm", 0)
    assert values["loss/value_avg"] == values["policy_loss"] == 0


def test_the_head_and_the_copy_learn_at_their_own_rate(world: World, tmp_path: Path) -> None:
    trainer = trainer_of(config_of(world, tmp_path, method(learning_rate_scale=5.0)))
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert trainer.value is not None
    mine = [rates.pop(id(p)) for p in trainer.value.parameters()]
    assert set(mine) == {5e-3} and set(rates.values()) == {1e-3}
    assert trainer.schedules[0].get_last_lr()[0] == 1e-3
