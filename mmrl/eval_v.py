"""Benchmarks of image generation and of image understanding; `task` says which.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final
    python -m mmrl.eval_v config=configs/eval/lladav_mmmu.yaml
    accelerate launch --config_file … -m mmrl.eval_v config=configs/eval/….yaml

Writes `scores.json` and `table.txt` into `output_dir`; run again, it continues from the samples
stored there, see `eval.benchmark`. Images (`text_to_image`, the default) also get a grid and, if
wanted, GenEval's folders. Questions about images (`image_to_text`) have the tables of `mmrl.eval`.
"""

import sys
from collections.abc import Sequence

from eval.eval_config import VISION_TASKS, EvalConfig, load_settings
from mmrl import begin
from mmrl.config.command import Usage, run_command
from mmrl.runtime.activity import activity, with_display
from rewards.scoring.failures import RewardError

USAGE = Usage("python -m mmrl.eval_v", __doc__, EvalConfig, "eval")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""

    @with_display
    def work() -> None:
        config = load_settings(arguments, VISION_TASKS)
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
