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
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from mmrl import begin
from mmrl.checkpoint import (
    CheckpointError,
    prune_checkpoints,
    recover_checkpoints,
    write_directory,
)
from mmrl.command import Usage, run_command
from mmrl.config import component, load_config
from mmrl.divergence import DivergenceError
from mmrl.interrupt import StopRequest
from mmrl.objectives import OBJECTIVES
from mmrl.sft_config import SFTConfig

if TYPE_CHECKING:
    from mmrl.run_directory import RunDirectory
    from mmrl.supervised_trainer import SupervisedTrainer

logger = logging.getLogger(__name__)
USAGE = Usage("python -m mmrl.sft", __doc__, SFTConfig, "sft")


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    errors = CheckpointError, DivergenceError
    return run_command(USAGE, arguments, lambda: _run(arguments), *errors)


def _run(arguments: Sequence[str]) -> int:
    config = load_config(SFTConfig, arguments)
    if not config.dry_run:
        return 0 if train(config) else 130
    from mmrl.compilation import check_compiler
    from mmrl.launch import check_launch
    from mmrl.sft_plan import describe

    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    sys.stdout.write(describe(config, int(os.environ.get("WORLD_SIZE", "1"))))
    return 0


def train(config: SFTConfig) -> bool:
    """Run a supervised training to its last step.

    Returns:
        False when it was stopped by Ctrl-C, after writing a checkpoint.

    Raises:
        ConfigError: settings that cannot run, before any model loads.
        CheckpointError: a checkpoint could not be written.
        DivergenceError: the loss is no longer finite.
    """
    # here, so that a question for help and a misspelt key do not wait for torch
    import torch
    from accelerate import Accelerator

    from mmrl.compilation import check_compiler
    from mmrl.launch import check_launch
    from mmrl.run_directory import RunDirectory, RunLog
    from mmrl.supervised_trainer import SupervisedTrainer

    begin()
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
        objective = OBJECTIVES[config.objective["name"]].load()(
            options, seed=config.seed, batch_size=config.per_device_train_batch_size
        )
        trainer = SupervisedTrainer(config, objective, accelerator)
        if checkpoint is not None:
            trainer.load(checkpoint)
        run.truncate_metrics(trainer.step or -1)
        _prune(trainer, run)
        logger.info("%s from step %d to %d", trainer.summary(), trainer.step, config.max_steps)
        with StopRequest() as stop:
            return _steps(config, trainer, run, stop)


def _steps(
    config: SFTConfig, trainer: SupervisedTrainer, run: RunDirectory, stop: StopRequest
) -> bool:
    saved = trainer.step
    with tqdm(
        total=config.max_steps,
        initial=trainer.step,
        disable=not run.is_main,
        mininterval=0.5 if sys.stderr.isatty() else 30.0,
        dynamic_ncols=True,
    ) as bar:
        while trainer.step < config.max_steps and not trainer.any_rank(stop.requested):
            trainer.train_step()
            bar.update()
            if _due(trainer.step, config.logging_steps):
                metrics = trainer.take_metrics()
                run.append(trainer.step, metrics)
                bar.set_postfix(loss=f"{metrics['loss']:.4f}", refresh=False)
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
