"""Supervised training of tokenizers and masked-token models.

    python -m mmrl.sft config=configs/sft/shapes_vq.yaml learning_rate=1e-3
    accelerate launch -m mmrl.sft config=configs/sft/….yaml

The loop does not know what it trains: an objective (`mmrl.objectives`) brings data, network, loss.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import Accelerator

from mmrl.activity import activity, displayed
from mmrl.checkpoint import (
    CheckpointError,
    prune_checkpoints,
    recover_checkpoints,
    write_directory,
)
from mmrl.command import exit_status
from mmrl.compilation import check_compiler
from mmrl.config import check, component, load_config
from mmrl.interrupt import Interrupted, StopRequest
from mmrl.launch import check_launch
from mmrl.learning_rate import check_schedule
from mmrl.objectives import OBJECTIVES
from mmrl.run_directory import RunDirectory, RunLog
from mmrl.sft_plan import describe
from mmrl.supervised_trainer import DivergenceError, SupervisedTrainer

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SFTConfig:
    """Settings of `python -m mmrl.sft`, named as in transformers and TRL."""

    output_dir: str = "runs/sft"
    """Run directory, see `mmrl.run_directory`."""
    objective: dict[str, Any] = field(default_factory=dict)
    """`name` and options of the objective, checked against its `Config`."""
    max_steps: int = 1000
    """Optimiser steps of the whole run."""
    per_device_train_batch_size: int = 32
    """Examples per device and micro-batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches per optimiser step."""
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    """`muon` trains hidden matrices with Muon and everything else with AdamW; `sgd` is plain
    gradient descent with momentum."""
    learning_rate: float = 1e-4
    """Highest learning rate."""
    learning_rate_scales: dict[str, float] = field(default_factory=dict)
    """Factors on the learning rate of parameters whose name starts with the key."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices and convolutions."""
    momentum: float = 0.9
    """Momentum of SGD."""
    adam_beta1: float = 0.9
    """First moment decay of AdamW."""
    adam_beta2: float = 0.999
    """Second moment decay of AdamW."""
    adam_epsilon: float = 1e-8
    """Denominator offset of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    lr_scheduler_type: str = "cosine"
    """Name of a transformers schedule: constant_with_warmup, linear, cosine, …"""
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, such as min_lr_rate for cosine_with_min_lr."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    ema_decay: float = 0.0
    """Decay of an average of the weights, which is what is saved and evaluated; 0 is off."""
    bf16: bool = False
    """Run forward passes under bfloat16 autocast."""
    torch_compile: bool = False
    """Compile the repeated blocks of the network; pays off from half an hour on.
    On a CPU it needs a C++ compiler."""
    seed: int = 0
    """Seed of new weights, of the order of examples and of every draw."""
    logging_steps: int = 10
    """Steps between lines of metrics."""
    eval_steps: int = 0
    """Steps between evaluations; 0 is never."""
    save_steps: int = 500
    """Steps between checkpoints; 0 writes only the final model."""
    save_total_limit: int | None = 2
    """Checkpoints to keep; null keeps all."""
    resume_from_checkpoint: str | None = None
    """`auto` continues from the newest checkpoint of `output_dir` if there is one; or a path."""
    dry_run: bool = False
    """Check everything, print the plan, and exit."""

    def __post_init__(self) -> None:
        for key in ("max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        check(self.logging_steps >= 1, "logging_steps", self.logging_steps, "at least 1")
        for key in ("eval_steps", "save_steps", "warmup_steps", "weight_decay", "max_grad_norm"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        check(0 <= self.momentum < 1, "momentum", self.momentum, "from 0 to below 1")
        check(self.learning_rate > 0, "learning_rate", self.learning_rate, "positive")
        check(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "from 0 to below 1")
        limit = self.save_total_limit
        check(limit is None or limit >= 1, "save_total_limit", limit, "null or at least 1")
        check_schedule(self, self.max_steps)


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    return exit_status(lambda: _run(arguments), CheckpointError, DivergenceError)


def _run(arguments: Sequence[str]) -> int:
    config = load_config(SFTConfig, arguments)
    if not config.dry_run:
        return 0 if train(config) else 130
    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    sys.stdout.write(describe(config, int(os.environ.get("WORLD_SIZE", "1"))))
    return 0


@displayed
def train(config: SFTConfig) -> bool:
    """Run a supervised training to its last step.

    Returns:
        False when it was stopped by Ctrl-C, after writing a checkpoint.

    Raises:
        ConfigError: settings that cannot run, before any model loads.
        CheckpointError: a checkpoint could not be written.
        DivergenceError: the loss is no longer finite.
    """
    options = component(OBJECTIVES, config.objective, where="objective")
    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    # without a device, launched processes find each other only where the CPU is asked for
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    run = RunDirectory(config.output_dir, accelerator.is_main_process)
    recover_checkpoints(run.checkpoints)
    checkpoint = run.starting_point(config.resume_from_checkpoint)
    accelerator.wait_for_everyone()
    with RunLog(run, accelerator.process_index):
        run.create(config)
        with activity("loading the model and the data"):
            objective = OBJECTIVES[config.objective["name"]](
                options, seed=config.seed, batch_size=config.per_device_train_batch_size
            )
            trainer = SupervisedTrainer(config, objective, accelerator)
            if checkpoint is not None:
                trainer.load(checkpoint)
        run.truncate_metrics(trainer.step or -1)
        _prune(trainer, run)
        logger.info("%s from step %d to %d", trainer.summary(), trainer.step, config.max_steps)
        with StopRequest(trainer.any_rank):
            return _steps(config, trainer, run)


def _steps(config: SFTConfig, trainer: SupervisedTrainer, run: RunDirectory) -> bool:
    saved = trainer.step
    with (
        suppress(Interrupted),  # what is half done leaves no trace
        activity("step", config.max_steps, trainer.step) as steps,
    ):
        if trainer.any_rank(_lacks_evaluation(config, trainer, run)):
            run.append(trainer.step, trainer.evaluate(run.samples))
        while trainer.step < config.max_steps:
            trainer.train_step()
            steps.done = trainer.step
            if _due(trainer.step, config.logging_steps):
                metrics = trainer.take_metrics()
                run.append(trainer.step, metrics)
                steps.remark = f"loss {metrics['loss']:.4f}"
            if _due(trainer.step, config.eval_steps):
                run.append(trainer.step, trainer.evaluate(run.samples))
            if _due(trainer.step, config.save_steps):
                _checkpoint(config, trainer, run)
                saved = trainer.step
    finished = trainer.step >= config.max_steps
    if not finished and saved != trainer.step:
        _checkpoint(config, trainer, run)
    if finished:
        _write(trainer, run.final, trainer.save_model)
        logger.info("finished; the model is in %s", run.final)
    else:
        logger.info("stopped at step %d; resume_from_checkpoint=auto continues", trainer.step)
    return finished


def _lacks_evaluation(config: SFTConfig, trainer: SupervisedTrainer, run: RunDirectory) -> bool:
    """Whether a stop cut short the evaluation of the step that the run goes on from."""
    if not run.is_main or trainer.step == 0 or not _due(trainer.step, config.eval_steps):
        return False
    lines = [line for line in run.read_metrics() if line["step"] == trainer.step]
    return all("loss" in line for line in lines)  # an evaluation has a line of its own


def _checkpoint(config: SFTConfig, trainer: SupervisedTrainer, run: RunDirectory) -> None:
    _write(trainer, run.checkpoints / str(trainer.step), trainer.save)
    _prune(trainer, run, config.save_total_limit)


def _prune(trainer: SupervisedTrainer, run: RunDirectory, keep: int | None = None) -> None:
    if run.is_main:
        prune_checkpoints(run.checkpoints, trainer.step, keep)


def _write(trainer: SupervisedTrainer, target: Path, write: Callable[[Path], None]) -> None:
    accelerator = trainer.accelerator
    write_directory(target, write, accelerator.is_main_process, accelerator.wait_for_everyone)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
