"""A reference policy that follows the trained one, as with TRL's `sync_ref_model`."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.planning.plan import describe
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import LORA, World, metrics, rollouts, run_config, same_weights, trainer_of

KL = {"beta": 0.1, "num_iterations": 2}
WAYS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])


def config_of(world: World, output: Path, **changes: Any) -> RLConfig:
    return run_config(world, output, algorithm=KL, **{"sync_ref_model": True, **changes})


def kls(trainer: Trainer, config: RLConfig, steps: int) -> list[float]:
    """The KL of each step to its reference, before its only update."""
    found = []
    for _ in range(steps):
        work = rollouts(config, trainer)
        found.append(trainer.update(work)["kl"])
    return found


def held(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer._reference_tensors().items()}


@WAYS
def test_the_reference_moves_by_alpha_after_its_steps(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    # two optimiser steps per step of the run: the third is in the second
    config = config_of(world, tmp_path, lora=lora, ref_model_sync_steps=3)
    trainer = trainer_of(config)
    start = held(trainer)
    assert start, "there is something to move"
    trainer.update(rollouts(config, trainer))
    assert all(torch.equal(value, start[name]) for name, value in held(trainer).items())
    trainer.update(rollouts(config, trainer))
    present = dict(trainer.policy.network.named_parameters())
    for name, value in held(trainer).items():
        expected = 0.4 * start[name] + 0.6 * present[name].detach()
        torch.testing.assert_close(value, expected)
    assert any(not torch.equal(value, start[name]) for name, value in held(trainer).items())


@WAYS
def test_a_reference_that_is_replaced_each_step_is_the_policy_before_the_update(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    algorithm = {"beta": 0.1, "num_iterations": 1}
    values = {"lora": lora, "algorithm": algorithm, "ref_model_sync_steps": 1}
    config = run_config(world, tmp_path, sync_ref_model=True, ref_model_mixup_alpha=1.0, **values)
    assert kls(trainer_of(config), config, 3) == [0.0, 0.0, 0.0]
    fixed = run_config(world, tmp_path, lora=lora, algorithm=algorithm)
    first, *later = kls(trainer_of(fixed), fixed, 3)
    assert first == 0 and min(later) > 0


@pytest.mark.parametrize("lora", [pytest.param(None, marks=pytest.mark.slow), LORA])
def test_a_resumed_run_has_the_reference_of_the_uninterrupted_one(
    world: World, tmp_path: Path, lora: dict | None
) -> None:
    changes = {"lora": lora, "ref_model_sync_steps": 2, "save_steps": 2}
    train(config_of(world, tmp_path / "whole", **changes))
    train(config_of(world, tmp_path / "parts", **changes, max_steps=2))
    train(config_of(world, tmp_path / "parts", **changes, resume_from_checkpoint="auto"))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert same_weights(tmp_path / "parts" / "final", tmp_path / "whole" / "final")


def test_without_a_divergence_there_is_nothing_to_follow(world: World, tmp_path: Path) -> None:
    config = run_config(world, tmp_path, sync_ref_model=True, algorithm={"beta": 0.0})
    trainer = trainer_of(config)
    assert not trainer.reference_moves and not trainer._reference_tensors()
    assert "no effect   sync_ref_model is true" in str(describe(config))
    assert "moves by 0.6 towards the policy every 512" in str(describe(config_of(world, tmp_path)))
