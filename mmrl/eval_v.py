"""Benchmarks of image generation and of image understanding; `task` says which.

    python -m mmrl.eval_v config=configs/eval/shapes_t2i.yaml model.path=runs/quickstart/final
    python -m mmrl.eval_v config=configs/eval/lladav_mmmu.yaml
    accelerate launch --config_file … -m mmrl.eval_v config=configs/eval/….yaml

Both write `scores.json` and `table.txt` into `output_dir`; what is sampled already is in its
`samples/`, see `mmrl.benchmark`. Images (`text_to_image`, the default) also get a grid and, where
asked, GenEval's folders. Questions about images (`image_to_text`) are a benchmark of texts, see
`mmrl.eval`.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from eval.geneval_folder import write_folder
from eval.text_to_image import Table, as_text, by_tag
from mmrl import eval as text_benchmark
from mmrl.benchmark import command, json_scores, passes, reward_keys, sample_all
from mmrl.benchmark_config import BenchmarkConfig
from mmrl.command import exit_status
from mmrl.config import check_choice, plain, stated
from mmrl.eval_v_config import EvalConfig
from mmrl.evaluation import Evaluation, scored, write_grid
from mmrl.inputs import load_ready
from mmrl.run_directory import git_commit
from mmrl.types import Prompt
from rewards.scoring import RewardError


def run(config: EvalConfig) -> dict[str, Table] | None:
    """Sample, score and write a benchmark.

    Returns:
        A table per reward; None on all processes but the main one.

    Raises:
        ConfigError, FileNotFoundError, ValueError: see `sample_all`.
        RewardError: a reward failed more often than `max_failures` allows.
    """
    sampled = sample_all(config, config.settings, config.num_images_per_prompt)
    if sampled is None:
        return None
    [batches] = sampled.batches.values()
    result = scored(sampled.rows, batches, sampled.scorer)
    out = Path(config.output_dir)
    tables = {key: by_tag(result.prompts, scores) for key, scores in result.scores.items()}
    text = as_text(tables) if tables else "no rewards, no scores\n"
    (out / "table.txt").write_text(text, encoding="utf-8")
    (out / "scores.json").write_text(_scores(config, tables, result), encoding="utf-8")
    write_grid(result, out / "images.png", config.grid_images)
    if config.geneval_dir:
        images = [c for c in result.completions if isinstance(c, Image.Image)]
        prompts = result.prompts[:: config.num_images_per_prompt]
        write_folder(Path(config.geneval_dir), prompts, images)
    return tables


def plan_of(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """What a run would do; nothing is loaded."""
    tags = Counter(str(prompt.metadata.get("tag", "untagged")) for prompt in prompts)
    rows = len(prompts) * config.num_images_per_prompt
    return {
        "prompts": f"{len(prompts)}: {', '.join(f'{tag} {n}' for tag, n in tags.items())}",
        "images": f"{rows}, in {math.ceil(rows / config.batch_size)} batches",
        "sampler": passes(config.settings, rows, config.batch_size),
        "rewards": reward_keys(config),
        "output": ", ".join(filter(None, (config.output_dir, config.geneval_dir))),
    }


def _scores(config: EvalConfig, tables: dict[str, Table], result: Evaluation) -> str:
    """Settings, tables and every score, as JSON; a score that does not exist is null."""
    samples = [
        {"id": prompt.id, **json_scores(result.scores, n)}
        for n, prompt in enumerate(result.prompts)
    ]
    head = {"commit": git_commit(), "config": plain(config), "tables": tables}
    return json.dumps({**head, "samples": samples}, indent=1, allow_nan=False) + "\n"


class Benchmark(NamedTuple):
    """A kind of benchmark: its settings, the lines of its dry run, and what runs it."""

    config: type[BenchmarkConfig]
    plan: Callable[[Any, Sequence[Prompt]], Mapping[str, str]]
    run: Callable[[Any], object]


BENCHMARKS: dict[str, Benchmark] = {
    "image_to_text": Benchmark(
        text_benchmark.EvalConfig, text_benchmark.plan_of, text_benchmark.run
    ),
    "text_to_image": Benchmark(EvalConfig, plan_of, run),
}
"""The benchmarks by their task."""


def load(arguments: Sequence[str]) -> BenchmarkConfig:
    """Settings of the benchmark whose task the command line or its YAML names.

    Raises:
        ConfigError: a task without a benchmark; see also `load_ready`.
    """
    task = str(stated(arguments, "task") or "text_to_image")
    check_choice("task", task, BENCHMARKS)
    return load_ready(BENCHMARKS[task].config, arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""

    def work() -> None:
        config = load(arguments)
        kind = BENCHMARKS[config.task]
        command(config, kind.plan, kind.run)

    return exit_status(work, RewardError)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
