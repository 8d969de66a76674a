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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl import begin
from mmrl.config import build_options
from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.objectives import OBJECTIVES
from mmrl.run.checkpoint import (
    CheckpointError,
    prune_checkpoints,
    recover_checkpoints,
    write_directory,
)
from mmrl.run.report import write_report
from mmrl.runtime.activity import activity, with_display
from mmrl.runtime.divergence import DivergenceError
from mmrl.runtime.interrupt import Interrupted, StopRequest
from mmrl.runtime.peers import PeerLostError, end_with_launcher, explain_lost_peers
from mmrl.sft_config import SFTConfig

if TYPE_CHECKING:
    from accelerate import Accelerator

    from mmrl.run.run_directory import RunDirectory
    from mmrl.training.supervised_trainer import SupervisedTrainer

logger = logging.getLogger(__name__)
USAGE = Usage("python -m mmrl.sft", __doc__, SFTConfig, "sft")


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    errors = CheckpointError, DivergenceError, PeerLostError
    return run_command(USAGE, arguments, lambda: _run(arguments), *errors)


def _run(arguments: Sequence[str]) -> int:
    config = load_ready(SFTConfig, arguments)
    if not config.dry_run:
        return 0 if train(config) else 130
    from mmrl.preflight.sft_plan import describe
    from mmrl.runtime.compilation import check_compiler
    from mmrl.runtime.launch import check_launch

    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    sys.stdout.write(describe(config, int(os.environ.get("WORLD_SIZE", "1"))))
    return 0


@with_display
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
    with activity("importing torch"):
        import torch
        from accelerate import Accelerator

        from mmrl.run.run_directory import RunDirectory
        from mmrl.runtime.compilation import check_compiler
        from mmrl.runtime.launch import check_launch

    begin()
    end_with_launcher()
    options = build_options(OBJECTIVES, config.objective, where="objective")
    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    # without a device, launched processes find each other only where the CPU is asked for
    cpu = not torch.accelerator.is_available()
    accelerator = Accelerator(cpu=cpu, mixed_precision="no")  # see mmrl.runtime.precision
    run = RunDirectory(config.output_dir, accelerator.is_main_process)
    with run.locked(), explain_lost_peers():
        return _learn(config, options, accelerator, run)


def _learn(config: SFTConfig, options: Any, accelerator: Accelerator, run: RunDirectory) -> bool:
    """The run, in a directory that no other writes into."""
    from mmrl.run.run_log import RunLog
    from mmrl.runtime.computation import choose_together
    from mmrl.training.supervised_trainer import SupervisedTrainer

    recover_checkpoints(run.checkpoints)
    checkpoint = run.starting_point(config.resume_from_checkpoint)
    accelerator.wait_for_everyone()
    with RunLog(run, accelerator.process_index):
        kernel = getattr(options, "attn_implementation", None)
        computation = choose_together(config, accelerator, kernel)
        computation.log()
        run.create(config, computation.reasons)
        with activity("loading the model and the data"):
            objective = OBJECTIVES[config.objective["name"]].load()(
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
            loss = trainer.train_step()
            steps.done, steps.remark = trainer.step, f"loss {loss:.4f}"
            if _due(trainer.step, config.logging_steps):
                run.append(trainer.step, trainer.take_metrics())
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
    if run.is_main:
        with activity("writing the report"):
            path = write_report(run.path)
        logger.info("report: %s", path)
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
