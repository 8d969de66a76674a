"""Benchmarks of image generation and of image understanding; `task` says which.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final
    python -m mmrl.eval_v config=configs/eval/lladav_mmmu.yaml
    accelerate launch --config_file … -m mmrl.eval_v config=configs/eval/….yaml

Both write `scores.json` and `table.txt` into `output_dir`; what is sampled already is in its
`samples/`, see `eval.benchmark`. Images (`text_to_image`, the default) also get a grid and, where
asked, GenEval's folders. Questions about images (`image_to_text`) are a benchmark of texts, see
`mmrl.eval`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from eval.benchmark_config import BenchmarkConfig
from eval.image_config import EvalConfig
from eval.text_config import EvalConfig as TextConfig
from mmrl import begin
from mmrl.config import check_choice, read_key
from mmrl.config.command import Usage, run_command
from mmrl.config.inputs import load_ready
from mmrl.runtime.activity import activity, displayed
from rewards.scoring.failures import RewardError


class Benchmark(NamedTuple):
    """A kind of benchmark: its settings, and the module with `run`, and `plan_of` for the lines of
    its dry run."""

    config: type[BenchmarkConfig]
    module: str


BENCHMARKS = {
    "text_to_image": Benchmark(EvalConfig, "eval.image_benchmark"),
    "image_to_text": Benchmark(TextConfig, "eval.text_benchmark"),
}
"""The benchmarks by their task."""

USAGE = Usage(
    "python -m mmrl.eval_v",
    __doc__,
    {f"task={task}": kind.config for task, kind in BENCHMARKS.items()},
    "eval",
)


def load(arguments: Sequence[str]) -> BenchmarkConfig:
    """Settings of the benchmark whose task the command line or its YAML names.

    Raises:
        ConfigError: a task without a benchmark; see also `load_ready`.
    """
    task = str(read_key(arguments, "task") or "text_to_image")
    check_choice("task", task, BENCHMARKS)
    return load_ready(BENCHMARKS[task].config, arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""

    @displayed
    def work() -> None:
        config = load(arguments)
        with activity("importing torch"):
            from eval.benchmark import command

            kind = import_module(BENCHMARKS[config.task].module)
        begin()
        command(config, kind.plan_of, kind.run)

    return run_command(USAGE, arguments, work, RewardError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
