"""Benchmarks of generated images and videos and of image understanding; `task` says which.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final
    python -m mmrl.eval_v config=configs/eval/lladav_mmmu.yaml
    python -m mmrl.eval_v config=configs/eval/shapes_edit.yaml
    accelerate launch --config_file … -m mmrl.eval_v config=configs/eval/….yaml

Writes `scores.json` and `table.txt` into `output_dir`; run again, it continues from the samples
stored there, see `mmrl.evaluation.benchmark`. Images (`text_to_image`, the default, and
`image_edit`) also get a grid, edits beside their sources, and, if wanted, GenEval's folders; videos
(`text_to_video`) are kept as animated WebP.
Questions about images (`image_to_text`) have the tables of `mmrl.eval`.
"""

import sys
from collections.abc import Sequence

from mmrl.config.command import Usage
from mmrl.evaluation.command import run_evaluation
from mmrl.evaluation.eval_config import VISION_TASKS, EvalConfig

USAGE = Usage("python -m mmrl.eval_v", __doc__, EvalConfig, "eval")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""
    return run_evaluation(USAGE, arguments, VISION_TASKS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
