"""Text benchmarks: scores in all and by group, length, passes and speed of each sampler setting.

    python -m mmrl.eval config=configs/eval/text_sudoku.yaml
    python -m mmrl.eval config=configs/eval/llada_gsm8k.yaml
    accelerate launch --config_file … -m mmrl.eval config=configs/eval/….yaml

Writes `scores.json` (every completion and score) and `table.txt` into `output_dir`; what is sampled
already is in its `samples/`, see `eval.benchmark`. `mmrl.eval_v` runs the same on questions about
images.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from eval.text_config import EvalConfig
from mmrl import begin
from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.runtime.activity import activity, displayed
from rewards.scoring.failures import RewardError

USAGE = Usage("python -m mmrl.eval", __doc__, EvalConfig, "eval")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""

    @displayed
    def work() -> None:
        config = load_ready(EvalConfig, arguments)
        with activity("importing torch"):
            from eval.benchmark import command
            from eval.text_benchmark import plan_of, run

        begin()
        command(config, plan_of, run)

    return run_command(USAGE, arguments, work, RewardError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
