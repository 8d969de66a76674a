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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl import begin
from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.run.checkpoint import CheckpointError, recover_checkpoints
from mmrl.runtime.activity import activity, with_display
from mmrl.runtime.divergence import DivergenceError
from mmrl.runtime.interrupt import Interrupted, StopRequest, check
from mmrl.runtime.peers import PeerLostError, end_with_launcher, explain_lost_peers
from mmrl.training.reward_versions import read_versions
from rewards.scoring.failures import RewardError

if TYPE_CHECKING:
    from accelerate import Accelerator

    from mmrl.run.run_directory import RunDirectory

__all__ = ["RLConfig", "main", "train"]

USAGE = Usage("python -m mmrl.rl", __doc__, RLConfig, "rl")


@with_display
def train(config: RLConfig) -> Path:
    """Run a reinforcement-learning run to its last step.

    Args:
        config: settings; `load_config(RLConfig, ["config=….yaml"])` builds them.

    Returns:
        The run directory.

    Raises:
        KeyboardInterrupt: after Ctrl-C; from the first step on with the last finished step saved.
        ConfigError: settings that cannot run, before any model loads.
        FileNotFoundError, ValueError: a checkpoint that is missing or damaged.
        RewardError, CheckpointError, DivergenceError: see there; the last checkpoint is intact.
    """
    # here, so that a question for help and a misspelt key do not wait for torch
    with activity("importing torch"):
        import torch
        from accelerate import Accelerator
        from accelerate.utils import ProjectConfiguration

        from mmrl.run.run_directory import RunDirectory
        from mmrl.runtime.compilation import check_compiler
        from mmrl.runtime.launch import check_launch

    begin()
    end_with_launcher()
    check_launch(config.optimizer)
    check_compiler(config.torch_compile)
    accelerator = Accelerator(
        # without a device, launched processes find each other only where the CPU is asked for
        cpu=not torch.accelerator.is_available(),
        mixed_precision="no",  # mmrl.runtime.precision puts autocast around the network alone
        log_with=list[Any](config.report_to) or None,
        project_config=ProjectConfiguration(logging_dir=f"{config.output_dir}/tensorboard"),
    )
    run = RunDirectory(config.output_dir, accelerator.is_main_process)
    with run.locked(), explain_lost_peers():
        _learn(config, accelerator, run)
    return run.path


def _learn(config: RLConfig, accelerator: Accelerator, run: RunDirectory) -> None:
    """The run, in a directory that no other writes into."""
    from mmrl.preflight.checks import check_run
    from mmrl.rollouts.rollout import sample_groups, score_groups
    from mmrl.run.run_log import RunLog
    from mmrl.runtime.computation import choose_together
    from mmrl.runtime.launch import any_process
    from mmrl.training.progress import Progress
    from mmrl.training.trainer import Trainer
    from models import load_policy
    from rewards.scoring.overlap import Overlap

    rank, world_size = accelerator.process_index, accelerator.num_processes
    recover_checkpoints(run.checkpoints)
    checkpoint = run.starting_point(config.resume_from_checkpoint)
    tasks = check_run(config, world_size)
    with activity("building the rewards"):
        scorers = [scorer for task in tasks.values() for scorer in task.build_rewards()]
        accelerator.wait_for_everyone()
    with RunLog(run, rank):
        model = config.model
        computation = choose_together(config, accelerator, model.attn_implementation, model.dtype)
        computation.log()
        run.create(config, computation.reasons)
        with activity("loading the model"):
            policy = load_policy(**policy_options(config.model), device=accelerator.device)
            for task in tasks.values():
                task.leave_out_long_prompts(policy)
                task.bind_policy(policy, config.seed)
            trainer = Trainer(config, policy, accelerator)
            if checkpoint is not None:
                trainer.load(checkpoint)
                read_versions(tasks, checkpoint)
        with (
            StopRequest(any_process),
            Overlap(scorers, config.overlap_rewards, check),
            Progress(config, run, trainer, tasks) as progress,
        ):
            with suppress(Interrupted):  # what is half done leaves no trace
                progress.evaluate_when_due()  # the first, or one that a stop cut short
                while trainer.step < config.max_steps:
                    place = trainer.step, config.seed, rank, world_size
                    groups = {n: sample_groups(task, policy, *place) for n, task in tasks.items()}
                    batches = {name: score_groups(some) for name, some in groups.items()}
                    metrics = trainer.update({n: (tasks[n], batches[n]) for n in batches})
                    progress.record(metrics, batches)
                    progress.evaluate_when_due()
                    progress.checkpoint_when_due()
            if not progress.finish():
                raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    errors = RewardError, CheckpointError, DivergenceError, PeerLostError
    return run_command(USAGE, arguments, lambda: _run(arguments), *errors)


def _run(arguments: Sequence[str]) -> None:
    config = load_ready(RLConfig, arguments)
    if config.dry_run:
        from mmrl.preflight.plan import describe
        from mmrl.runtime.compilation import check_compiler
        from mmrl.runtime.launch import check_launch

        check_launch(config.optimizer)
        check_compiler(config.torch_compile)
        sys.stdout.write(describe(config, int(os.environ.get("WORLD_SIZE", "1"))))
    else:
        train(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
