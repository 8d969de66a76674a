"""What an evaluation writes.

table.txt      the scores, for people
scores.json    settings, tables, and the scores of every sample
images.png     a grid of images, where completions are images; of videos images.webp, which moves
<geneval_dir>  every image, in the folders that GenEval's own evaluator reads:
               00000/metadata.jsonl        the prompt's row
               00000/samples/00000.png     its images
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.rollouts.held_out import Batch, Evaluation
from mmrl.rollouts.held_out_grid import write_grid
from mmrl.run.environment import git_commit
from mmrl.types import Prompt

GRID_IMAGES = 48


class Results(NamedTuple):
    """The completions and scores of a benchmark.

    `evaluations` and `batches` are by label of their setting; `left_out` is the number of prompts
    that were too long.
    """

    evaluations: dict[str, Evaluation]
    batches: dict[str, list[Batch]]
    left_out: int


class Report(NamedTuple):
    """What a kind of benchmark makes of its results.

    `table`: text for people. `content`: of `scores.json`.
    """

    table: str
    content: dict[str, Any]


def write_results(config: EvalConfig, results: Results, report: Report) -> None:
    """Write all files of a benchmark."""
    out = Path(config.output_dir)
    head = {"commit": git_commit(), "config": config.to_dict()}
    (out / "table.txt").write_text(report.table, encoding="utf-8")
    content = json.dumps(head | report.content, indent=1, ensure_ascii=False, allow_nan=False)
    (out / "scores.json").write_text(content + "\n", encoding="utf-8")
    for evaluation in results.evaluations.values():
        write_grid(evaluation, out / "images.png", GRID_IMAGES)
        if config.geneval_dir:
            prompts = evaluation.prompts[:: config.num_images_per_prompt]
            images = [c for c in evaluation.completions if isinstance(c, Image.Image)]
            write_geneval_folders(Path(config.geneval_dir), prompts, images)


def finite_scores(evaluation: Evaluation, n: int) -> dict[str, float | None]:
    """Scores of sample n by reward, None where there is none."""
    scores = {key: each[n] for key, each in evaluation.scores.items()}
    return {key: score if math.isfinite(score) else None for key, score in scores.items()}


def format_table(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A table as text: heads, then cells by label, with the title above the labels."""
    table = [(title, heads), *rows.items()]
    first = max(len(label) for label, _ in table) + 2
    columns = zip(*(cells for _, cells in table), strict=True)
    widths = [max(10, max(map(len, column)) + 2) for column in columns]
    lines = []
    for label, cells in table:
        aligned = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append("".join([f"{label:<{first}}", *aligned]))
    return "\n".join(lines)


def write_geneval_folders(
    out: Path, prompts: Sequence[Prompt], images: Sequence[Image.Image]
) -> None:
    """Write a folder per prompt, as GenEval's evaluator reads them, with as many images each."""
    each = len(images) // len(prompts)
    for n, prompt in enumerate(prompts):
        folder = out / f"{n:05d}"
        (folder / "samples").mkdir(parents=True, exist_ok=True)
        row = {**prompt.metadata, "prompt": prompt.text}
        (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
        for k, image in enumerate(images[n * each : (n + 1) * each]):
            image.save(folder / "samples" / f"{k:05d}.png")
