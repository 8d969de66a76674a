"""Tiny runs in which something happens on one process of several, or that compute in bfloat16.

`main` is what `tests.mmrl.pair` calls.
"""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl import rl
from mmrl.runtime.failures import DivergenceError
from mmrl.training.trainer import Trainer
from tests.mmrl.runs import LORA, World, run_config, world_in

EVENTS = {"max_steps": 3, "save_steps": 0, "model": {"dtype": "float64"}}
HALF = {"bf16": True, "max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 1}
HALF |= {"model": {"dtype": "bfloat16"}}
KINDS: dict[str, dict[str, Any]] = {"events": EVENTS}
KINDS |= {"autocast": {**HALF, "model": {"dtype": "float32"}}, "half": HALF}
KINDS |= {"half-lora": {**HALF, "lora": LORA}}
"""A run whose last process gets SIGUSR1 in the first step and has a loss that is not finite in the
second; runs under autocast, on weights in float32 and in bfloat16, and on frozen ones in bfloat16
below an adapter."""


def reinforce(world: World, output: Path, kind: str, **changes: Any) -> Path:
    """A run of `KINDS` that samples row by row, so that the tokens are those of one process."""
    usual = {"algorithm": {"beta": 0.1}, "task": {"rollout_batch_size": 1}, "adam_epsilon": 1e-3}
    config = run_config(world, output, **{**usual, **KINDS[kind], **changes})
    with pytest.MonkeyPatch.context() as patch:
        if kind == "events":
            patch.setattr(Trainer, "_loss", disturb(Trainer._loss))
        return rl.train(config)


def is_last() -> bool:
    """Whether this is the last process."""
    rank, world_size = (int(os.environ.get(n, d)) for n, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    return rank == world_size - 1


def disturb(original: Callable) -> Callable:
    """`Trainer._loss` with the events of the last process; it has the last rollouts of a step."""

    def loss(self: Trainer, part: Any) -> Any:
        last = is_last() and part.rows.stop == len(part.item.batch)
        if last and self.step == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        value, shares = original(self, part)
        return value * (torch.nan if last and self.step == 1 else 1.0), shares

    return loss


def run_all(world: World, output: Path, kinds: Sequence[str]) -> None:
    """The run with events, and those of some kinds, each once more from its first checkpoint."""
    with pytest.raises(DivergenceError, match="the loss is not finite for"):
        reinforce(world, output / "events", "events")
    for kind in kinds:
        run = reinforce(world, output / kind, kind)
        begun = str(run / "checkpoints" / "1")
        reinforce(world, output / f"{kind}-resumed", kind, resume_from_checkpoint=begun)


def main(arguments: list[str]) -> int:
    """The runs of every process of a pair.

    Args:
        arguments: folder of the world, folder for the runs, and their kinds.
    """
    run_all(world_in(Path(arguments[0])), Path(arguments[1]), arguments[2:])
    return 0
