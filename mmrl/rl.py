"""Reinforcement learning of masked-token models.

    python -m mmrl.rl config=configs/rl/quickstart.yaml learning_rate=1e-5
    python -m mmrl.rl config=configs/rl/quickstart.yaml dry_run=true
    accelerate launch -m mmrl.rl config=configs/rl/….yaml

Every step: prompts, rollouts, scores and advantages, masks and log-probs, update, report (`train`
reads so). Rewards work in the background from the first group that is sampled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl import begin
from mmrl.checkpoint import CheckpointError, recover_checkpoints
from mmrl.command import Usage, run_command
from mmrl.config import load_config
from mmrl.divergence import DivergenceError
from mmrl.interrupt import StopRequest
from mmrl.model_config import policy_options
from mmrl.reward_versions import read_versions
from mmrl.rl_config import RLConfig
from rewards.scoring import RewardError

__all__ = ["RLConfig", "main", "train"]

USAGE = Usage("python -m mmrl.rl", __doc__, RLConfig, "rl")


def train(config: RLConfig) -> Path:
    """Run a reinforcement-learning run to its last step.

    Args:
        config: settings; `load_config(RLConfig, ["config=….yaml"])` builds them.

    Returns:
        The run directory.

    Raises:
        KeyboardInterrupt: after Ctrl-C; once the model is loaded, with the step finished and saved.
        ConfigError: settings that cannot run, before any model loads.
        FileNotFoundError, ValueError: a checkpoint that is missing or damaged.
        RewardError, CheckpointError, DivergenceError: see there; the last checkpoint is intact.
    """
    # here, so that a question for help and a misspelt key do not wait for torch
    import torch
    from accelerate import Accelerator

    from mmrl.compilation import check_compiler
    from mmrl.launch import check_launch
    from mmrl.progress import Progress
    from mmrl.rollout import rewarded, sample_groups
    from mmrl.run_directory import RunDirectory, RunLog
    from mmrl.tasks import Task
    from mmrl.trainer import Trainer
    from models import load_policy
    from rewards.overlap import Overlap

    begin()
    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    accelerator = Accelerator(
        # without a device, launched processes find each other only where the CPU is asked for
        cpu=not torch.accelerator.is_available(),
        mixed_precision="no",  # bf16 is autocast around the network alone, see mmrl.precision
        log_with=list[Any](config.report_to) or None,
        project_dir=config.output_dir,
    )
    rank, world_size = accelerator.process_index, accelerator.num_processes
    config.check_geometry(world_size)
    config.check_model()
    tasks = {name: Task(name, options) for name, options in config.tasks.items()}
    run = RunDirectory(config.output_dir, accelerator.is_main_process)
    recover_checkpoints(run.checkpoints)
    checkpoint = run.starting_point(config.resume_from_checkpoint)
    for task in tasks.values():
        task.check_prompts(config.model)
    scorers = [scorer for task in tasks.values() for scorer in task.build_rewards()]
    accelerator.wait_for_everyone()
    with RunLog(run, rank):
        run.create(config)
        policy = load_policy(**policy_options(config.model), device=accelerator.device)
        for task in tasks.values():
            task.leave_out_long_prompts(policy)
            task.give_policy(policy, config.seed)
        trainer = Trainer(config, policy, accelerator)
        if checkpoint is not None:
            trainer.load(checkpoint)
            read_versions(tasks, checkpoint)
        with (
            Overlap(scorers, config.overlap_rewards),
            StopRequest() as stop,
            Progress(config, run, trainer, tasks, stop) as progress,
        ):
            while trainer.step < config.max_steps and not progress.any_rank(stop.requested):
                place = trainer.step, config.seed, rank, world_size
                groups = {name: sample_groups(task, policy, *place) for name, task in tasks.items()}
                batches = {name: rewarded(some) for name, some in groups.items()}
                metrics = trainer.update({name: (tasks[name], batches[name]) for name in batches})
                progress.record(metrics, batches)
                progress.evaluate_when_due()
                progress.checkpoint_when_due()
            if not progress.finish():
                raise KeyboardInterrupt
    return run.path


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    errors = RewardError, CheckpointError, DivergenceError
    return run_command(USAGE, arguments, lambda: _run(arguments), *errors)


def _run(arguments: Sequence[str]) -> None:
    config = load_config(RLConfig, arguments)
    if config.dry_run:
        from mmrl.compilation import check_compiler
        from mmrl.launch import check_launch
        from mmrl.plan import describe

        check_launch(config.optimizer)
        check_compiler(config.torch_compile)
        sys.stdout.write(describe(config, int(os.environ.get("WORLD_SIZE", "1"))))
    else:
        train(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
