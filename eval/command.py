"""The work of the commands that evaluate."""

import sys
from collections.abc import Sequence
from functools import partial

from mmrl import begin
from mmrl.config.command import Usage
from mmrl.evaluation.eval_config import EvalConfig, load_settings
from mmrl.run.planned_command import run_planned
from mmrl.runtime.activity import activity, with_display


@with_display()
def evaluate(config: EvalConfig) -> None:
    """Run a benchmark and print its table."""
    with activity("importing torch"):
        from mmrl.evaluation.benchmark import run_benchmark
    begin()
    if report := run_benchmark(config):
        sys.stdout.write(f"{report.table}written to {config.output_dir}\n")


def run_evaluation(usage: Usage, arguments: Sequence[str], tasks: Sequence[str]) -> int:
    """`run_planned` for a benchmark of one of some tasks, the first of which is the default."""
    load = partial(load_settings, tasks=tasks)
    return run_planned(usage, arguments, evaluate, "mmrl.evaluation.plan", load)
