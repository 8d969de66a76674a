"""The frame of the commands that train or evaluate: help, settings, the work or its plan, the exit
status."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from mmrl.config.command import Usage, run_command
from mmrl.config.settings import load_ready
from mmrl.engines.engine import EngineError
from mmrl.rewards.scoring.failures import RewardError
from mmrl.run.checkpoint import CheckpointError
from mmrl.runtime.failures import DivergenceError, LostError, explain_losses

ERRORS = RewardError, CheckpointError, DivergenceError, EngineError, LostError


def run_planned(
    usage: Usage,
    arguments: Sequence[str],
    work: Callable[[Any], object],
    plan: str,
    load: Callable[[Sequence[str]], Any] | None = None,
) -> int:
    """Work as the command line says, or print the plan for `dry_run=true`; return the exit status,
    1 for a plan of what would be refused.

    `work` gets the settings, an instance of `usage.config`, as `load` reads them, None for
    `load_ready`; `--verbose` is `verbose=true`. `plan` is a module with `describe(config)`,
    imported for a dry run only."""
    words = ["verbose=true" if word == "--verbose" else word for word in arguments]

    def run() -> None:
        config = load_ready(usage.config, words) if load is None else load(words)
        if not config.dry_run:
            with explain_losses():
                work(config)
            return
        found = import_module(plan).describe(config)
        sys.stdout.write(str(found))
        found.check()

    return run_command(usage, words, run, *ERRORS)
