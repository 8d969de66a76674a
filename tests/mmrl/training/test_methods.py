"""Every preset, run for two updates on tiny rollouts: start, direction, cost."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms.forwards import Forwards, count_forwards
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.training.trainer import Trainer
from tests.mmrl.algorithms.test_presets import PRESETS
from tests.mmrl.runs import rollouts, run_config, trainer_of

STEPS, LENGTH = 5, 64
SAMPLER = SamplerConfig(name="maskgit", steps=STEPS)
"""Writes something in each of its steps, so that slices of steps can be counted."""
NEEDS = {
    "spg": {"block_size": 16},
    "trace_rl": {"slice_size": 2},
    "trace_rl_value": {"slice_size": 2},
    "step_merge": {"num_slices": 3},
    "just_grpo": {"slice_size": 8},
    "bgpo": {"num_draws": 4},
    "ebpo": {"num_draws": 2},
}
"""What fits a rollout of 64 tokens in five steps."""
COSTS = {
    "bgpo": (4, 4, 0),
    "coupled_grpo": (3, 3, 3),
    "diffu_grpo": (1, 1, 1),
    "ebpo": (2, 2, 0),
    "espo": (2, 2, 2),
    "gdpo": (2, 2, 0),
    "just_grpo": (8, 8, 0),
    "mask_grpo": (1, 1, 1),
    "mask_grpo_text": (1, 1, 1),
    "random_masking": (2, 2, 0),
    "spg": (2, 0, 0),
    "step_merge": (3, 3, 0),
    "trace_rl": (3, 3, 0),
    "trace_rl_value": (3, 3, 0, 6),
    "unigrpo": (1, 1, 1),
    "wd1": (1, 0, 0),
}
"""Forwards per rollout and inner iteration, of two: new, old and reference policy, value model."""


def prepared(
    world: SimpleNamespace, tmp_path: Path, algorithm: dict, **changes: Any
) -> tuple[Trainer, Task, RolloutBatch]:
    """A trainer, and four rollouts with advantages."""
    task = {"sampler": SAMPLER, "num_prompts": 1, "num_generations": 4}
    config = run_config(world, tmp_path, algorithm=algorithm, task=task, **changes)
    trainer = trainer_of(config)
    job, batch = rollouts(config, trainer)["shapes"]
    batch.advantages = torch.tensor([1.0, -1.0, 0.5, -0.5])
    return trainer, job, batch


def algorithm_of(name: str, **changes: Any) -> dict:
    return {"name": name, "num_iterations": 2, **NEEDS.get(name, {}), **changes}


def counted(trainer: Trainer, calls: list[tuple[bool, int]]) -> None:
    """Note for every forward whether it is for a gradient, and its rows."""

    def note(module: Any, args: tuple, kwargs: dict) -> None:
        calls.append((torch.is_grad_enabled(), len(kwargs["input_ids"])))

    for network in (trainer.policy.network, trainer.frozen, trainer.value):
        if network is not None:
            network.register_forward_pre_hook(note, with_kwargs=True)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_starts_at_ratio_one_moves_the_right_way_and_costs_what_it_declares(
    world: SimpleNamespace, tmp_path: Path, name: str
) -> None:
    algorithm = algorithm_of(name)
    slow = {"learning_rate": 1e-30, "warmup_steps": 1000}
    trainer, task, batch = prepared(world, tmp_path, algorithm, **slow)
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    values = trainer.update({"shapes": (task, batch)})
    assert values["ratio"] == 1.0 and values["approx_kl"] == 0.0 and values.get("kl", 0.0) == 0.0
    assert values["clip_ratio/low_mean"] == values["clip_ratio/high_mean"] == 0
    assert values["grad_norm"] > 0
    row, rows = task.algorithm, len(batch)
    cost = count_forwards(row, STEPS, LENGTH)
    assert cost == Forwards(*COSTS[name])
    assert sum(n for grad, n in calls if grad) == 2 * rows * cost.backward
    assert sum(n for _, n in calls) == 2 * rows * cost.total
    trainer.optimizers[0].param_groups[0]["lr"] = 1e-3
    before = likelihood(trainer, task, batch)
    trainer.update({"shapes": (task, batch)})
    gain = likelihood(trainer, task, batch) - before
    assert float((gain * batch.advantages).sum()) > 0


FAST = {"name": "just_grpo", "num_iterations": 2, "top_entropy_quantile": 0.25}


@pytest.mark.slow
def test_the_fast_variant_trains_on_the_quarter_with_the_highest_entropy_at_a_quarter_of_the_cost(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    trainer, task, batch = prepared(world, tmp_path, {**FAST, "beta": 0.1})
    whole, _, _ = prepared(world, tmp_path, {**FAST, "top_entropy_quantile": 1.0})
    job = Task("shapes", whole.config.tasks["shapes"])
    every = whole._prepare(job, batch, 0)
    with torch.no_grad():
        entropy = whole._score(every, slice(None), every.passes).entropy.sum(0)
    lowest = entropy[:, -LENGTH:].sort(-1, descending=True).values[:, LENGTH // 4 - 1]
    for iteration in range(2):
        kept = trainer._prepare(task, batch, iteration).passes
        assert torch.equal(kept.scored.any(0), entropy >= lowest[:, None])
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    assert trainer.update({"shapes": (task, batch)})["grad_norm"] > 0
    cost = count_forwards(task.algorithm, STEPS, LENGTH)
    assert cost == Forwards(LENGTH // 4, LENGTH // 4, LENGTH // 4, entropy=LENGTH)
    assert sum(n for grad, n in calls if grad) == 2 * len(batch) * cost.backward
    assert sum(n for _, n in calls) == 2 * len(batch) * cost.total


@torch.no_grad()
def likelihood(trainer: Trainer, task: Task, batch: RolloutBatch) -> Tensor:
    """[B] the mean log-prob of each rollout's tokens over the masks of two inner iterations."""
    total = torch.zeros(len(batch))
    for iteration in range(2):
        item = trainer._prepare(task, batch, iteration)
        logprobs, *_ = trainer._score(item, slice(None), item.passes)
        total += logprobs.sum((0, 2)) / item.passes.scored.sum((0, 2))
    return total
