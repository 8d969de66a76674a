"""Groups whose rewards are all equal: found, and left out of the update where that is wanted."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmrl.algorithms.advantages import equal_groups
from tests.mmrl.runs import World, rollouts, run_config, trainer_of

SLOW = {"learning_rate": 1e-30, "warmup_steps": 1000}


def test_a_group_is_equal_where_no_two_known_rewards_differ() -> None:
    nan = float("nan")
    rewards = torch.tensor([1.0, 1.0, 1.0, 0.0, nan, 2.0, nan, nan])
    assert equal_groups(rewards, 2).tolist() == [True] * 2 + [False] * 2 + [True] * 4


def updated(
    world: World, folder: Path, left_out: Tensor | None, **algorithm: object
) -> tuple[dict[str, float], int]:
    """Metrics of an update on two groups, the second without advantages, and rows of forwards."""
    row = {"num_iterations": 1, "beta": 0.0, **algorithm}
    trainer = trainer_of(run_config(world, folder, algorithm=row, max_grad_norm=0.0, **SLOW))
    job, batch = rollouts(trainer.config, trainer)["shapes"]
    assert batch.left_out is None, "it is an option"
    batch.advantages, batch.left_out = torch.tensor([1.0, -1.0, 0.5, -0.5] + [0.0] * 4), left_out
    fed = 0

    def note(module: object, args: tuple, kwargs: dict) -> None:
        nonlocal fed
        fed += len(kwargs["input_ids"])

    trainer.policy.network.register_forward_pre_hook(note, with_kwargs=True)
    return trainer.update({"shapes": (job, batch)}), fed


@pytest.mark.parametrize("aggregation", ["grpo", "dr_grpo", "gspo"])
def test_what_is_left_out_is_not_averaged_over_and_hardly_computed(
    world: World, tmp_path: Path, aggregation: str
) -> None:
    second = torch.arange(8) >= 4
    every, rows = updated(world, tmp_path, None, aggregation=aggregation)
    some, fewer = updated(world, tmp_path, second, aggregation=aggregation)
    assert every["grad_norm"] > 0
    assert some["grad_norm"] == pytest.approx(2 * every["grad_norm"], rel=1e-4)
    # a micro-batch of which nothing is left keeps a row, so that processes stay in step
    assert rows == 8 and fewer == 4 + 1
    nothing, _ = updated(world, tmp_path, second | True, aggregation=aggregation)
    assert nothing["loss"] == nothing["grad_norm"] == 0.0


def test_a_task_leaves_its_equal_groups_out(world: World, tmp_path: Path) -> None:
    def first(samples: list) -> list[float]:
        return [float(n == 0) for n in range(len(samples))]

    rewards = [{"name": "first", "reward": first}]
    task = {"skip_zero_std_groups": True, "rewards": rewards}
    config = run_config(world, tmp_path, task=task)
    _, batch = rollouts(config, trainer_of(config))["shapes"]
    assert batch.left_out is not None and batch.left_out.tolist() == [False] * 4 + [True] * 4
    assert batch.metrics["frac_reward_zero_std"] == 0.5
