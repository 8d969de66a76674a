"""Updates with a value model: where it starts, what it learns, what it costs."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms.forwards import Forwards, count_forwards
from mmrl.rl_config import RLConfig
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import (
    LORA,
    rollouts,
    run_config,
    trainer_of,
)
from tests.mmrl.training.test_methods import counted

SAMPLER = SamplerConfig(name="maskgit", steps=4)
slow = partial(pytest.param, marks=pytest.mark.slow)
BACKBONES = pytest.mark.parametrize("backbone", ["shared", "copy"])
ADAPTERS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])


def method(backbone: str | None, **value: Any) -> dict:
    """Slices of one step, one inner iteration; without a value model where no backbone is named."""
    settings = None if backbone is None else {"backbone": backbone, **value}
    return {"name": "trace_rl", "slice_size": 1, "num_iterations": 1, "value": settings}


def config_of(world: SimpleNamespace, output: Path, algorithm: dict, **changes: Any) -> RLConfig:
    task = {"sampler": SAMPLER, **changes.pop("task", {})}
    return run_config(world, output, algorithm=algorithm, task=task, **changes)


def prepared(config: RLConfig) -> tuple[Trainer, dict[str, tuple[Task, RolloutBatch]]]:
    """A trainer and the rollouts of its first step, with advantages that differ."""
    trainer = trainer_of(config)
    work = rollouts(config, trainer)
    for _, batch in work.values():
        batch.advantages = torch.linspace(-1, 1, len(batch))
    return trainer, work


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """What is trained of the policy, without a head on it."""
    named = trainer.trained.named_parameters()
    return {n: p.detach().clone() for n, p in named if p.requires_grad and "value_head" not in n}


def value_weights(trainer: Trainer) -> dict[str, Tensor]:
    assert trainer.value is not None
    return {n: p.detach().clone() for n, p in trainer.value.trained.named_parameters()}


@BACKBONES
@ADAPTERS
def test_before_it_has_learned_anything_it_changes_nothing(
    world: SimpleNamespace, tmp_path: Path, backbone: str, lora: dict | None
) -> None:
    results = []
    for named in (None, backbone):
        changes = {"lora": lora, "max_grad_norm": 0.0, "adam_epsilon": 1e-3}
        config = config_of(world, tmp_path, method(named), **changes)
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


@pytest.mark.parametrize(
    ("backbone", "lora"),
    [slow("shared", None), ("copy", LORA)],
)
def test_on_fixed_rollouts_the_value_loss_falls_and_with_it_the_advantages(
    world: SimpleNamespace, tmp_path: Path, backbone: str, lora: dict | None
) -> None:
    value = {"learning_rate_scale": 5.0, "vf_coef": 1.0, "cliprange_value": 10.0}
    algorithm = method(backbone, **value)
    config = config_of(world, tmp_path, algorithm, lora=lora, learning_rate=2e-3)
    trainer, work = prepared(config)
    start = value_weights(trainer)
    losses = [trainer.update(work)["loss/value_avg"] for _ in range(12)]
    assert losses[-1] < 0.9 * losses[0]
    moved = {n for n, tensor in value_weights(trainer).items() if not torch.equal(tensor, start[n])}
    assert any("weight" in name for name in moved)
    frozen = {n for n in start if lora is not None and ".lora_" not in n and n != "head.weight"}
    assert backbone == "shared" or moved == start.keys() - frozen
    item = trainer._prepare(*work["shapes"], 0)
    left = torch.cat([found.advantages for found in item.estimates], 1)[item.passes.scored]
    assert float(left.square().mean()) / 2 < 0.95 * losses[0]


def test_a_copy_is_the_policys_twin_and_on_the_same_weights_where_they_are_frozen(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    for changes in ({}, {"lora": LORA}, {"model": {"modules_to_train": ["blocks.0.attn"]}}):
        config = config_of(world, tmp_path, method("copy"), **changes)
        trainer = trainer_of(config)
        own, policy = value_weights(trainer), trainer.policy.network.state_dict()
        assert not own.pop("head.weight").any()
        twins = {name.removeprefix("backbone."): tensor for name, tensor in own.items()}
        assert twins.keys() == policy.keys() - {"head.weight"}
        assert all(torch.equal(tensor, policy[name]) for name, tensor in twins.items())
        assert trainer.value is not None
        places = {p.data_ptr() for p in trainer.value.trained.parameters() if not p.requires_grad}
        shared = {p.data_ptr() for p in trainer.trained.parameters() if not p.requires_grad}
        assert places <= shared and bool(places) == bool(changes)


@pytest.mark.parametrize(
    ("backbone", "lora"),
    [("shared", None), slow("copy", LORA)],
)
def test_the_size_of_micro_batches_changes_nothing_but_rounding(
    world: SimpleNamespace, tmp_path: Path, backbone: str, lora: dict | None
) -> None:
    algorithm = {**method(backbone, lam=0.7, gamma=0.9), "num_iterations": 2}
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


@BACKBONES
def test_a_rollout_that_no_reward_applies_to_teaches_neither_policy_nor_values(
    world: SimpleNamespace, tmp_path: Path, backbone: str
) -> None:
    config = config_of(world, tmp_path, {**method(backbone), "beta": 0.0})
    trainer, work = prepared(config)
    trainer.update(work)
    _, batch = work["shapes"]
    batch.rewards[:] = torch.nan
    before = {**weights(trainer), **value_weights(trainer)}
    values = trainer.update(work)
    assert values["grad_norm"] == 0 == values.get("val/grad_norm", 0)
    assert values["loss/value_avg"] == values["policy_loss"] == 0
    assert len(before) > 2


@BACKBONES
def test_an_update_costs_the_forwards_that_are_declared(
    world: SimpleNamespace, tmp_path: Path, backbone: str
) -> None:
    trainer, work = prepared(config_of(world, tmp_path, {**method(backbone), "slice_size": 2}))
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    trainer.update(work)
    task, batch = work["shapes"]
    cost = count_forwards(task.algorithm, SAMPLER.steps, 64)
    assert cost == (Forwards(2, 2, 0) if backbone == "shared" else Forwards(2, 0, 0, 4))
    assert sum(n for _, n in calls) == len(batch) * cost.total
    assert sum(n for grad, n in calls if grad) == len(batch) * cost.backward


BF16 = {"bf16": True, "lora": LORA, "model": {"dtype": "bfloat16"}}
EAGER = {"model": {"attn_implementation": "eager", "gradient_checkpointing": True}}
GUIDED = {"algorithm": {"cfg_scale": 1.5, "temperature": 0.8, "ratio_level": "step"}}
POSITION = {"algorithm": {"name": "step_merge", "num_slices": 2}}


@pytest.mark.parametrize(
    ("backbone", "changes"),
    [
        pytest.param("shared", BF16, id="shared-bf16"),
        pytest.param("copy", EAGER, id="copy-eager"),
        pytest.param("shared", GUIDED, id="shared-guided"),
        pytest.param("copy", POSITION, id="copy-position"),
    ],
)
def test_at_the_start_every_ratio_is_one_under_all_settings(
    world: SimpleNamespace, tmp_path: Path, backbone: str, changes: dict
) -> None:
    changes = dict(changes)
    algorithm = {**method(backbone), "num_iterations": 2, **changes.pop("algorithm", {})}
    if "num_slices" in algorithm:
        algorithm["slice_size"] = 1
    still = {"learning_rate": 1e-30, "warmup_steps": 1000}
    trainer, work = prepared(config_of(world, tmp_path, algorithm, **still, **changes))
    values = trainer.update(work)
    assert (values["ratio"], values["approx_kl"], values["val/mean"]) == (1.0, 0.0, 0.0)
    assert values["grad_norm"] > 0 and values["loss/value_avg"] > 0


def test_the_head_and_the_copy_learn_at_their_own_rate(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    for backbone, number in (("shared", 1), ("copy", None)):
        algorithm = method(backbone, learning_rate_scale=5.0)
        trainer = trainer_of(config_of(world, tmp_path, algorithm))
        rates = {
            id(p): group["lr"] for group in trainer.optimizer.param_groups for p in group["params"]
        }
        assert trainer.value is not None
        mine = [rates.pop(id(p)) for p in trainer.value.trained.parameters()]
        assert set(mine) == {5e-3} and len(mine) == (number or len(mine)) and len(mine) >= 1
        assert set(rates.values()) == {1e-3}
        assert trainer.schedule.get_last_lr()[0] == 1e-3
