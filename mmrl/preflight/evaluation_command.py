"""The frame of the commands that evaluate: help, settings, the benchmark or its plan, the exit
status."""

import sys
from collections.abc import Sequence

from mmrl import begin
from mmrl.config.command import Usage, run_command
from mmrl.evaluation.eval_config import load_settings
from mmrl.rewards.scoring.failures import RewardError
from mmrl.runtime.activity import activity, with_display


def run_evaluation(usage: Usage, arguments: Sequence[str], tasks: Sequence[str]) -> int:
    """Evaluate as the command line says, or print the plan for `dry_run=true`.

    Args:
        usage: of the command.
        arguments: of the command line.
        tasks: that the command accepts; the first is the default.

    Returns:
        The exit status.
    """

    @with_display
    def work() -> None:
        config = load_settings(arguments, tasks)
        with activity("importing torch"):
            from mmrl.evaluation.comparison import run
            from mmrl.preflight.eval_plan import describe

        begin()
        if config.dry_run:
            sys.stdout.write(describe(config))
        elif report := run(config):
            sys.stdout.write(f"{report.table}written to {config.output_dir}\n")

    return run_command(usage, arguments, work, RewardError)
