"""Text benchmarks: scores in all and by group, length, NFE and speed of each sampler setting.

    python -m mmrl.eval config=configs/eval/text_sudoku.yaml
    python -m mmrl.eval config=configs/eval/llada_gsm8k.yaml
    accelerate launch --config_file … -m mmrl.eval config=configs/eval/….yaml

Writes `scores.json` (every completion and score) and `table.txt` into `output_dir`; run again, it
continues from the samples stored there, see `mmrl.evaluation.benchmark`. `mmrl.eval_v` runs the
same on questions about images.
"""

import sys
from collections.abc import Sequence

from mmrl.config.command import Usage
from mmrl.evaluation.command import run_evaluation
from mmrl.evaluation.eval_config import TEXT_TASKS, EvalConfig

USAGE = Usage("python -m mmrl.eval", __doc__, EvalConfig, "eval")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""
    return run_evaluation(USAGE, arguments, TEXT_TASKS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
