"""What an evaluation writes.

table.txt      the scores, for people
scores.json    settings, tables, and the scores of every sample
images.png     a grid of images, where completions are images
<geneval_dir>  every image, in the folders that GenEval's own evaluator reads:
               00000/metadata.jsonl        the prompt's row
               00000/samples/00000.png     its images
               00000/grid.png              the same side by side
               00000/source.png            the source image, of edits
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageOps

from mmrl.data.prompts import spread
from mmrl.evaluation.eval_config import EvalConfig
from mmrl.evaluation.evaluation import Batch, Evaluation
from mmrl.models.task_names import EDITS
from mmrl.run.environment import git_commit
from mmrl.run.image_grid import BLACK, Cell, beside, page, scale
from mmrl.types import Prompt

CELL = 128
GREEN, RED = (10, 125, 51), (179, 38, 30)


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

    `table`: text for people. `tables`: the same numbers. `content`: of `scores.json`.
    """

    table: str
    tables: Mapping[str, Any]
    content: Mapping[str, Any]


def write_results(config: EvalConfig, results: Results, report: Report) -> None:
    """Write all files of a benchmark."""
    out = Path(config.output_dir)
    head = {"commit": git_commit(), "config": config.to_dict()}
    scores = json.dumps(head | dict(report.content), indent=1, ensure_ascii=False, allow_nan=False)
    (out / "table.txt").write_text(report.table, encoding="utf-8")
    (out / "scores.json").write_text(scores + "\n", encoding="utf-8")
    for evaluation in results.evaluations.values():
        write_grid(evaluation, out / "images.png", config.grid_images)
        if config.geneval_dir:
            prompts = evaluation.prompts[:: config.num_images_per_prompt]
            images = [c for c in evaluation.completions if isinstance(c, Image.Image)]
            write_geneval_folders(Path(config.geneval_dir), prompts, images)


def finite_scores(evaluation: Evaluation, n: int) -> dict[str, float | None]:
    """Scores of sample n by reward, None where there is none."""
    scores = {key: each[n] for key, each in evaluation.scores.items()}
    return {key: score if math.isfinite(score) else None for key, score in scores.items()}


def format_table(
    title: str,
    heads: Sequence[tuple[str, int]],
    rows: Mapping[str, Sequence[str]],
    label_width: int,
) -> str:
    """A table as text.

    Args:
        title: above the labels.
        heads: head and width of each column.
        rows: cells by label.
        label_width: of the first column.
    """
    lines = []
    for label, cells in [(title, [head for head, _ in heads]), *rows.items()]:
        aligned = (f"{cell:>{width}}" for cell, (_, width) in zip(cells, heads, strict=True))
        lines.append("".join([f"{label:<{label_width}}", *aligned]))
    return "\n".join(lines)


def write_grid(evaluation: Evaluation, path: Path, count: int, columns: int = 8) -> bool:
    """Write the grid of an evaluation; nothing for texts.

    Returns:
        Whether there was something to write.
    """
    grid = draw_grid(evaluation, count, columns)
    if grid is not None:
        grid.save(path)
    return grid is not None


def draw_grid(evaluation: Evaluation, count: int, columns: int = 8) -> Image.Image | None:
    """Draw `count` images, spread over all of them, with prompts and scores; None for texts.

    Equal prompts and counts give equal places, so grids of two steps can be compared.
    """
    images = [n for n, c in enumerate(evaluation.completions) if isinstance(c, Image.Image)]
    if not images or count < 1:
        return None
    return page([_cell(evaluation, n) for n in spread(images, count)], columns)


def _cell(evaluation: Evaluation, n: int) -> Cell:
    """One image, an edit beside its source, with its prompt and its first score."""
    image = evaluation.completions[n]
    assert isinstance(image, Image.Image)
    lines = [(evaluation.prompts[n].text, BLACK)]
    for key, scores in list(evaluation.scores.items())[:1]:
        if not math.isnan(scores[n]):
            color = GREEN if scores[n] == 1 else RED if scores[n] == 0 else BLACK
            lines.append((f"{key} {scores[n]:.3g}", color))
    source = source_image(evaluation.prompts[n])
    if source is None:
        return Cell(scale(image, CELL), lines)
    return Cell(beside(*(scale(_square(each), CELL) for each in (source, image))), lines)


def source_image(prompt: Prompt) -> Image.Image | None:
    """The source image of an edit; None for other prompts."""
    return prompt.images[0] if prompt.task in EDITS and prompt.images else None


def _square(image: Image.Image) -> Image.Image:
    """An image of any sides in the middle of a white square."""
    side = max(image.size)
    return ImageOps.pad(image.convert("RGB"), (side, side), color="white")


def write_geneval_folders(
    out: Path, prompts: Sequence[Prompt], images: Sequence[Image.Image]
) -> None:
    """Write a folder per prompt, as GenEval's evaluator reads them.

    Args:
        out: created if needed.
        prompts: of the benchmark, in its order.
        images: the same number for every prompt, prompt by prompt.

    Raises:
        ValueError: the images do not divide among the prompts.
    """
    if not prompts or len(images) % len(prompts):
        raise ValueError(f"{len(images)} images do not divide among {len(prompts)} prompts")
    each = len(images) // len(prompts)
    for n, prompt in enumerate(prompts):
        folder = out / f"{n:05d}"
        (folder / "samples").mkdir(parents=True, exist_ok=True)
        row = {**prompt.metadata, "prompt": prompt.text}
        (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
        mine = images[n * each : (n + 1) * each]
        width, height = mine[0].size
        grid = Image.new("RGB", (width * each, height))
        for k, image in enumerate(mine):
            image.save(folder / "samples" / f"{k:05d}.png")
            grid.paste(image, (k * width, 0))
        grid.save(folder / "grid.png")
        if (source := source_image(prompt)) is not None:
            source.save(folder / "source.png")
