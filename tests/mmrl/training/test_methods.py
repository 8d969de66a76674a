"""Every preset, run for two updates on tiny rollouts: start, direction, cost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.algorithms.forwards import Forwards, count_forwards
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.rollouts.tasks import Task
from mmrl.samplers import SamplerConfig
from mmrl.training.micro_batches import Part, Prepared, split_parts
from mmrl.training.trainer import Trainer
from mmrl.types import Rollout
from tests.mmrl.algorithms.test_presets import PRESETS
from tests.mmrl.runs import World, rollouts, run_config, trainer_of

STEPS, LENGTH = 5, 64
SAMPLER = SamplerConfig(name="maskgit", steps=STEPS)
"""Writes something in each of its steps, so that slices of steps can be counted."""
SAMPLERS = {"fork_grpo": SamplerConfig(name="fork", steps=STEPS, threshold=1.0)}
"""What other methods need; it draws something in each of its steps."""
NEEDS = {"spg": {"block_size": 16}, "stable_drl": {"block_size": 16}, "trace_rl": {"slice_size": 2}}
NEEDS |= {"trace_rl_value": {"slice_size": 2}, "step_merge": {"num_slices": 3}}
NEEDS |= {"just_grpo": {"slice_size": 8}, "bgpo": {"num_draws": 4}, "ebpo": {"num_draws": 2}}
"""What fits a rollout of 64 tokens in five steps."""
COSTS = {"bgpo": (4, 4, 0), "coupled_grpo": (3, 3, 3), "diffu_grpo": (1, 1, 1), "ebpo": (2, 2, 0)}
COSTS |= {"espo": (2, 2, 2), "fork_grpo": (5, 5, 0), "gdpo": (2, 2, 0), "gdsd": (2, 2, 0)}
COSTS |= {"just_grpo": (8, 8, 0), "lfpo": (2, 2, 0), "mask_grpo": (1, 1, 1)}
COSTS |= {"mask_grpo_text": (1, 1, 1), "random_masking": (2, 2, 0), "spg": (2, 0, 0)}
COSTS |= {"stable_drl": (2, 4, 0), "step_merge": (3, 3, 0), "trace_rl": (3, 3, 0)}
COSTS |= {"trace_rl_value": (3, 3, 0, 6), "unigrpo": (1, 1, 1), "wd1": (1, 0, 0)}
"""Forwards per rollout and inner iteration, of two: new, old and reference policy, value model."""


def prepared(
    world: World, tmp_path: Path, algorithm: dict, **changes: Any
) -> tuple[Trainer, Task, RolloutBatch]:
    """A trainer, and four rollouts with advantages."""
    sampler = SAMPLERS.get(algorithm["name"], SAMPLER)
    task = {"sampler": sampler, "num_prompts": 1, "num_generations": 4}
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
    world: World, tmp_path: Path, name: str
) -> None:
    algorithm = algorithm_of(name)
    slow = {"learning_rate": 1e-30, "warmup_steps": 1000}
    trainer, task, batch = prepared(world, tmp_path, algorithm, **slow)
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    values = trainer.update({"shapes": (task, batch)})
    if task.algorithm.contrast == "none":
        assert values["ratio"] == 1.0 and values["approx_kl"] == values.get("kl", 0.0) == 0.0
        assert values["clip_ratio/low_mean"] == values["clip_ratio/high_mean"] == 0
    else:
        assert values["old_deviation"] == 0.0
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
    world: World, tmp_path: Path
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


METHODS: dict[str, dict[str, Any]] = {
    "elbo": {"name": "espo", "num_draws": 2, "beta": 0.1},
    "quadrature": {"name": "gdpo", "num_draws": 3},
    "sandwich": {"name": "spg", "num_draws": 4, "block_size": 16},
    "position": {"name": "step_merge", "num_slices": 4, "ratio_level": "sequence"}
    | {"aggregation": "gspo"},
    "gmpo": {"name": "trace_rl", "slice_size": 1, "aggregation": "gmpo", "beta": 0.1},
    "block": {"name": "trace_rl", "slice_size": 1, "ratio_level": "block", "block_size": 4},
    "token": {"name": "coupled_grpo"},
    "additive": {"name": "bgpo", "num_draws": 4},
    "left to right": {"name": "just_grpo", "slice_size": 16},
    "weights": {"name": "stable_drl", "block_size": 16, "epsilon": 0.002, "epsilon_high": 0.002},
}


def end_early(batch: RolloutBatch, lengths: list[int]) -> None:
    """Let only so many tokens of each rollout count."""
    canvas = batch.rollout.canvas
    place = canvas.response.cumsum(-1)
    canvas.valid = canvas.response & (place <= torch.tensor(lengths)[:, None])


def updated(
    world: World, tmp_path: Path, algorithm: dict, **changes: Any
) -> tuple[dict[str, Tensor], dict[str, float], list[tuple[bool, int]], Trainer]:
    settings = {"num_iterations": 2, **algorithm}
    trainer, task, batch = prepared(world, tmp_path, settings, adam_epsilon=1e-3, **changes)
    end_early(batch, [64, 50, 33, 20])
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    values = trainer.update({"shapes": (task, batch)})
    return {n: p.detach() for n, p in trainer.trained.named_parameters()}, values, calls, trainer


QUICK = ("token", "block", "position", "weights")


@pytest.mark.parametrize(
    "method",
    [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in sorted(METHODS)],
)
def test_passes_and_rows_in_any_portions_give_the_same_update(
    world: World, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = METHODS[method]
    with monkeypatch.context() as patch:
        patch.setattr("mmrl.training.trainer.split_parts", all_passes_at_once)
        whole, values, _, _ = updated(world, tmp_path, algorithm)
    for rows in (4, 2, 1):
        changes = {"per_device_train_batch_size": rows}
        some, numbers, calls, trainer = updated(world, tmp_path, algorithm, **changes)
        for name, tensor in whole.items():
            torch.testing.assert_close(some[name], tensor, atol=2e-6, rtol=0)
        for key in ("loss", "grad_norm", "ratio", "approx_kl", "entropy", "policy_loss"):
            assert numbers[key] == pytest.approx(values[key], rel=1e-3, abs=1e-6)
        if trainer.config.algorithms[0].pass_by_pass:
            assert max(n for grad, n in calls if grad) == rows  # rows of ended texts are left out


def all_passes_at_once(item: Prepared, micro_batches: list[slice], _: bool) -> Iterator[Part]:
    for m, rows in enumerate(micro_batches):
        yield Part(item, m, rows, slice(None))


def test_a_part_of_passes_that_score_nothing_still_exists(world: World, tmp_path: Path) -> None:
    changes = {"per_device_train_batch_size": 2}
    trainer, task, batch = prepared(world, tmp_path, algorithm_of("trace_rl"), **changes)
    item = trainer._prepare(task, batch, 0)
    item.passes.scored[:, :2] = False
    found = list(split_parts(item, [slice(0, 2), slice(2, 4)]))
    assert [part.m for part in found] == [0, 1, 1, 1]
    loss, _ = trainer._loss(found[0])
    loss.backward()


def test_what_comes_after_the_end_of_a_text_changes_no_update(world: World, tmp_path: Path) -> None:
    for name in ("diffu_grpo", "coupled_grpo", "espo", "spg", "just_grpo"):
        results = []
        for replaced in (False, True):
            trainer, task, batch = prepared(world, tmp_path, algorithm_of(name))
            end_early(batch, [40, 30, 20, 10])
            canvas = batch.rollout.canvas
            if replaced:
                canvas.tokens[canvas.response & ~canvas.counted] = canvas.columns[0]
            results.append(trainer.update({"shapes": (task, batch)}))
        for key in ("loss", "grad_norm", "entropy", "ratio"):
            assert results[0][key] == results[1][key]


def test_ends_survive_when_rollouts_of_different_width_become_one_batch(
    world: World, tmp_path: Path
) -> None:
    _, _, batch = prepared(world, tmp_path, algorithm_of("mask_grpo"))
    end_early(batch, [64, 50, 33, 20])
    ended, rollout = batch.rollout[:2], batch.rollout[2:]
    rollout.canvas.valid = None
    narrow = {k: v[:, 1:] for k, v in vars(rollout.canvas).items() if isinstance(v, Tensor)}
    rollout.canvas = replace(rollout.canvas, **narrow)
    rollout.trace, rollout.logprobs = rollout.trace[:, 1:], rollout.logprobs[:, 1:]
    together = Rollout.join([ended, rollout]).canvas
    assert together.counted.sum(-1).tolist() == [64, 50, 64, 64]
    assert not bool((together.counted & ~together.response).any())
