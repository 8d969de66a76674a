"""Text benchmarks: scores in all and by group, length, NFE and speed of each sampler setting.

    python -m mmrl.eval config=configs/eval/text_sudoku.yaml
    python -m mmrl.eval config=configs/eval/llada_gsm8k.yaml
    accelerate launch --config_file … -m mmrl.eval config=configs/eval/….yaml

Writes `scores.json` (every completion and score) and `table.txt` into `output_dir`; run again, it
continues from the samples stored there, see `eval.benchmark`. `mmrl.eval_v` runs the same on
questions about images.
"""

import sys
from collections.abc import Sequence

from eval.eval_config import TEXT_TASKS, EvalConfig, load_settings
from mmrl import begin
from mmrl.config.command import Usage, run_command
from mmrl.runtime.activity import activity, with_display
from rewards.scoring.failures import RewardError

USAGE = Usage("python -m mmrl.eval", __doc__, EvalConfig, "eval")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""

    @with_display
    def work() -> None:
        config = load_settings(arguments, TEXT_TASKS)
        with activity("importing torch"):
            from eval.benchmark import run
            from mmrl.preflight.eval_plan import describe

        begin()
        if config.dry_run:
            sys.stdout.write(describe(config))
        elif report := run(config):
            sys.stdout.write(f"{report.table}written to {config.output_dir}\n")

    return run_command(USAGE, arguments, work, RewardError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
