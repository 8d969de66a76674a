"""The average of a policy's weights in an RL run: who uses it, and that it survives a stop."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.rl import train
from mmrl.training.rl_progress import RLProgress
from tests.mmrl.runs import LORA, VQ, metrics, rollouts, run_config, same_weights, trainer_of


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_the_average_is_what_is_evaluated_and_saved_and_the_weights_are_what_samples(
    world: SimpleNamespace, tmp_path: Path, lora: dict | None
) -> None:
    trainer = trainer_of(run_config(world, tmp_path, lora=lora, ema_decay=0.5))
    named = {n: p for n, p in trainer.policy.network.named_parameters() if p.requires_grad}
    average = {name: p.detach().clone() for name, p in named.items()}
    step = trainer.schedule.step
    updates = 0

    def follow() -> None:
        nonlocal updates
        step()
        updates += 1
        decay = min(0.5, (1 + updates) / (10 + updates))
        for name, p in named.items():
            average[name].lerp_(p.detach(), 1 - decay)

    trainer.schedule.step = follow  # type: ignore[method-assign]
    trainer.update(rollouts(trainer.config, trainer))
    weights = {name: p.detach().clone() for name, p in named.items()}
    assert updates == 2  # one for each inner iteration
    with trainer.averaged():
        for name, p in named.items():
            torch.testing.assert_close(p.detach(), average[name], atol=1e-6, rtol=1e-5)
    assert all(torch.equal(p, weights[name]) for name, p in named.items())
    (tmp_path / "model").mkdir()
    trainer.save_model(tmp_path / "model", merge=True)
    saved = load_policy(tmp_path / "model", VQ).network.state_dict()
    merged = load_policy(world.policy, VQ).network.state_dict()
    different = [name for name in saved if not torch.equal(saved[name], merged[name])]
    assert different and (lora is not None or set(different) <= set(average))
    for name in different if lora is None else ():
        torch.testing.assert_close(saved[name], average[name], atol=1e-6, rtol=1e-5)


def test_evaluations_are_of_the_average(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []

    def look(self: RLProgress) -> list[Any]:
        seen.append(self.policy.network.head.weight.detach().clone())
        return []

    monkeypatch.setattr(RLProgress, "_evaluate_tasks", look)
    config = run_config(
        world,
        tmp_path,
        ema_decay=0.5,
        max_steps=1,
        eval_steps=1,
        save_steps=0,
        task={"eval_prompts": world.held_out},
    )
    final = load_policy(train(config) / "final", VQ).network.head.weight
    start = load_policy(world.policy, VQ).network.head.weight
    assert torch.equal(seen[0], start) and torch.equal(seen[-1], final)
    assert not torch.equal(final, start)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_four_steps_equal_two_a_stop_and_two_more_with_an_average(
    world: SimpleNamespace, tmp_path: Path, lora: dict | None
) -> None:
    changes: dict[str, Any] = {
        "ema_decay": 0.9,
        "lora": lora and {**lora, "lora_dropout": 0.1},
        "eval_steps": 2,
        "task": {"eval_prompts": world.held_out},
    }
    train(run_config(world, tmp_path / "whole", **changes))
    train(run_config(world, tmp_path / "parts", max_steps=2, **changes))
    again = {"resume_from_checkpoint": "auto"}
    train(run_config(world, tmp_path / "parts", **again, **changes))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for name in ("final", "checkpoints/4"):
        assert same_weights(tmp_path / "parts" / name, tmp_path / "whole" / name)


def test_a_decay_of_one_would_never_follow(world: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ema_decay is 1.0"):
        run_config(world, tmp_path, ema_decay=1.0)
