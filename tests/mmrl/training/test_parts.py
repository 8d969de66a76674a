"""Parts of an update: passes one after the other give the gradient of all at once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmrl.rollouts.rollout import RolloutBatch
from mmrl.training.micro_batches import Part, Prepared, split_parts
from mmrl.training.trainer import Trainer
from mmrl.types import Rollout
from tests.mmrl.training.test_methods import algorithm_of, counted, prepared

METHODS: dict[str, dict[str, Any]] = {
    "elbo": {"name": "espo", "num_draws": 2, "beta": 0.1},
    "quadrature": {"name": "gdpo", "num_draws": 3},
    "sandwich": {"name": "spg", "num_draws": 4, "block_size": 16},
    "position": {
        "name": "step_merge",
        "num_slices": 4,
        "ratio_level": "sequence",
        "aggregation": "gspo",
    },
    "gmpo": {"name": "trace_rl", "slice_size": 1, "aggregation": "gmpo", "beta": 0.1},
    "block": {"name": "trace_rl", "slice_size": 1, "ratio_level": "block", "block_size": 4},
    "token": {"name": "coupled_grpo"},
    "additive": {"name": "bgpo", "num_draws": 4},
    "left to right": {"name": "just_grpo", "slice_size": 16},
}


def end_early(batch: RolloutBatch, lengths: list[int]) -> None:
    """Let only so many tokens of each rollout count."""
    canvas = batch.rollout.canvas
    place = canvas.response.cumsum(-1)
    canvas.valid = canvas.response & (place <= torch.tensor(lengths)[:, None])


def updated(
    world: SimpleNamespace, tmp_path: Path, algorithm: dict, **changes: Any
) -> tuple[dict[str, Tensor], dict[str, float], list[tuple[bool, int]], Trainer]:
    settings = {"num_iterations": 2, **algorithm}
    trainer, task, batch = prepared(world, tmp_path, settings, adam_epsilon=1e-3, **changes)
    end_early(batch, [64, 50, 33, 20])
    calls: list[tuple[bool, int]] = []
    counted(trainer, calls)
    values = trainer.update({"shapes": (task, batch)})
    return {n: p.detach() for n, p in trainer.trained.named_parameters()}, values, calls, trainer


QUICK = ("token", "block", "position")


@pytest.mark.parametrize(
    "method",
    [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in sorted(METHODS)],
)
def test_passes_and_rows_in_any_portions_give_the_same_update(
    world: SimpleNamespace, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
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


def test_a_part_of_passes_that_score_nothing_still_exists(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    changes = {"per_device_train_batch_size": 2}
    trainer, task, batch = prepared(world, tmp_path, algorithm_of("trace_rl"), **changes)
    item = trainer._prepare(task, batch, 0)
    item.passes.scored[:, :2] = False
    found = list(split_parts(item, [slice(0, 2), slice(2, 4)]))
    assert [part.m for part in found] == [0, 1, 1, 1]
    loss, _ = trainer._loss(found[0])
    loss.backward()


def test_what_comes_after_the_end_of_a_text_changes_no_update(
    world: SimpleNamespace, tmp_path: Path
) -> None:
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
    world: SimpleNamespace, tmp_path: Path
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
