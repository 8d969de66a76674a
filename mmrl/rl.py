"""Reinforcement learning of generative models.

    python -m mmrl.rl config=configs/rl/quickstart.yaml learning_rate=1e-5
    python -m mmrl.rl config=configs/rl/quickstart.yaml dry_run=true
    accelerate launch -m mmrl.rl config=configs/rl/….yaml

Every step: prompts, rollouts, scores and advantages, passes and log-probs, update, report (`train`
reads so). Rewards work in the background from the first group that is sampled.
"""

import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from mmrl.config.command import Usage
from mmrl.rl_config import RLConfig
from mmrl.run.planned_command import run_planned
from mmrl.runtime.activity import activity, reach, with_display
from mmrl.runtime.interrupt import Interrupted, StopRequest

USAGE = Usage("python -m mmrl.rl", __doc__, RLConfig, "rl")


@with_display()
def train(config: RLConfig) -> Path:
    """Run a reinforcement-learning run to its last step; `load_config(RLConfig, ["config=….yaml"])`
    builds its settings. Returns the run directory.

    Raises KeyboardInterrupt: after Ctrl-C; from the first step on with the last finished step
    saved. Raises ConfigError, FileNotFoundError, ValueError: settings that cannot run, before any
    model loads, or a checkpoint that is missing or damaged. Raises RewardError, CheckpointError,
    DivergenceError, EngineError: see there; the last checkpoint is intact."""
    with activity("importing torch"):  # here, so that --help and a misspelt key do not wait for it
        from mmrl.planning.batch_sizes import settle_batch_sizes
        from mmrl.planning.run_checks import check_run
        from mmrl.rewards.scoring.overlap import Overlap
        from mmrl.rollouts.chain import sample_chains, score_chains
        from mmrl.runtime.launch import any_process
        from mmrl.runtime.placement import read_placement
        from mmrl.training.rl_progress import RLProgress
        from mmrl.training.start import open_directory, open_log, start_processes
        from mmrl.training.trainers import Trainers, load_policies

    accelerator, model = start_processes(config), next(iter(config.runs.values())).model
    rank, world_size = accelerator.process_index, accelerator.num_processes
    with open_directory(config, accelerator) as (run, checkpoint):
        tasks = check_run(config, world_size)
        with activity("building the rewards", timed=False):
            scorers = [scorer for task in tasks.values() for scorer in task.build_rewards()]
        with open_log(config, accelerator, run, model.attn_implementation, model.dtype):
            runs = settle_batch_sizes(config.runs, tasks, read_placement())[0]
            with activity("loading the model", timed=False):
                policies = load_policies(config, accelerator)
                for task in tasks.values():
                    task.bind_policies(policies, config.seed)
                trainer = Trainers(config, runs, policies, accelerator)
                trainer.lend(tasks.values())
                if checkpoint is not None:
                    trainer.load(checkpoint)
            with (
                closing(trainer),
                StopRequest(any_process),
                Overlap(scorers, config.overlap_rewards, reach, config.ddp_timeout),
                RLProgress(run, trainer, tasks) as progress,
            ):
                with suppress(Interrupted):  # what is half done leaves no trace
                    progress.evaluate_when_due()  # the first, or one that a stop interrupted
                    while not progress.done:
                        place = trainer.step, config.seed, rank, world_size
                        batches = score_chains(sample_chains(tasks, *place))
                        metrics = trainer.update(tasks, batches)
                        progress.record_step(metrics, batches)
                        progress.evaluate_when_due()
                        progress.checkpoint_when_due()
                if not progress.finish():
                    raise KeyboardInterrupt
    return run.path


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    return run_planned(USAGE, arguments, train, "mmrl.planning.plan")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
