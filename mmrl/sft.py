"""Supervised training of tokenizers and generative models.

    python -m mmrl.sft config=configs/sft/shapes_vq.yaml learning_rate=1e-3
    accelerate launch -m mmrl.sft config=configs/sft/….yaml

The loop does not know what it trains: an objective (`mmrl.objectives`) brings data, network, loss.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from pathlib import Path

from mmrl.config.command import Usage
from mmrl.objectives import find_objective
from mmrl.run.planned_command import run_planned
from mmrl.runtime.activity import activity, with_display
from mmrl.runtime.interrupt import Interrupted, StopRequest
from mmrl.sft_config import SFTConfig, count_steps

USAGE = Usage("python -m mmrl.sft", __doc__, SFTConfig, "sft")


@with_display()
def train(config: SFTConfig) -> Path:
    """Run a supervised training to its last step; return the run directory.

    Raises KeyboardInterrupt: after Ctrl-C, with the last finished step saved. Raises ConfigError:
    settings that cannot run, before any model loads. Raises CheckpointError: a checkpoint could not
    be written. Raises DivergenceError: the loss is no longer finite."""
    with activity("importing torch"):  # here, so that --help and a misspelt key do not wait for it
        from mmrl.runtime.launch import any_process
        from mmrl.runtime.sharding import build_sharding
        from mmrl.training.progress import Progress
        from mmrl.training.start import open_directory, open_log, start_processes
        from mmrl.training.supervised_trainer import SupervisedTrainer

    entry, options = find_objective(config.objective)
    build = entry.load()
    accelerator = start_processes(config)
    kernel = getattr(options, "attn_implementation", None)
    with (
        open_directory(config, accelerator) as (run, checkpoint),
        open_log(config, accelerator, run, kernel),
    ):
        with activity("loading the model and the data", timed=False):
            here = {"device": accelerator.device, "deferred": build_sharding(accelerator).gathers}
            known = signature(build).parameters
            place = {key: value for key, value in here.items() if key in known}
            size = config.per_device_train_batch_size
            objective = build(options, seed=config.seed, batch_size=size, **place)
            examples = getattr(objective, "examples_per_epoch", None)
            steps = count_steps(config, examples, accelerator.num_processes)
            config = replace(config, max_steps=steps)
            trainer = SupervisedTrainer(config, objective, accelerator)
            if checkpoint is not None:
                trainer.load(checkpoint)
        with (
            StopRequest(any_process),
            Progress(run, trainer, lambda: [trainer.evaluate(run.samples)]) as progress,
        ):
            with suppress(Interrupted):  # what is half done leaves no trace
                progress.evaluate_when_due()  # one that a stop interrupted
                while trainer.step < config.max_steps:
                    with activity("update"):
                        loss = trainer.train_step()
                    progress.record(f"loss {loss:.4f}")
                    progress.evaluate_when_due()
                    progress.checkpoint_when_due()
            if not progress.finish():
                raise KeyboardInterrupt
    return run.path


def main(arguments: Sequence[str]) -> int:
    """Train as the command line says; return the exit status."""
    return run_planned(USAGE, arguments, train, "mmrl.planning.sft_plan")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
