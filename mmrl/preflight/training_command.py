"""The frame of the commands that train: help, settings, the run or its plan, the exit status."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.preflight.planned_launch import use_launch
from mmrl.rewards.scoring.failures import RewardError
from mmrl.run.checkpoint import CheckpointError
from mmrl.runtime.divergence import DivergenceError
from mmrl.runtime.watchdog import PeerLostError

ERRORS = RewardError, CheckpointError, DivergenceError, PeerLostError


def run_training(
    usage: Usage, arguments: Sequence[str], train: Callable[[Any], object], plan: str
) -> int:
    """Train as the command line says, or print the plan for `dry_run=true`.

    Args:
        usage: of the command.
        arguments: of the command line.
        train: trains with the settings, an instance of `usage.config`.
        plan: module with `describe(config)`, imported for a dry run only.

    Returns:
        The exit status.
    """

    def work() -> None:
        config = load_ready(usage.config, arguments)
        if config.dry_run:
            with use_launch(config.launch_config):
                sys.stdout.write(import_module(plan).describe(config))
        else:
            train(config)

    return run_command(usage, arguments, work, *ERRORS)
