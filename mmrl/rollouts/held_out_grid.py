"""The images of an evaluation on one page, each with its prompt and its first score."""

import math
from pathlib import Path

from PIL import Image, ImageOps

from mmrl.data.prompts import spread
from mmrl.models.task_names import EDITS
from mmrl.rollouts.held_out import Evaluation
from mmrl.run.image_grid import BLACK, Cell, beside, page, scale
from mmrl.types import Prompt

CELL = 128
"""Width of an image in pixels."""
GREEN, RED = (10, 125, 51), (179, 38, 30)


def draw_grid(evaluation: Evaluation, count: int, columns: int = 8) -> Image.Image | None:
    """Draw `count` images, spread over all of them, with prompts and scores; None for texts.

    Equal prompts and counts give equal places, so grids of two steps can be compared.
    """
    images = [n for n, c in enumerate(evaluation.completions) if isinstance(c, Image.Image)]
    if not images or count < 1:
        return None
    return page([_cell(evaluation, n) for n in spread(images, count)], columns)


def write_grid(evaluation: Evaluation, path: Path, count: int) -> bool:
    """Write the grid of an evaluation; return whether there are images."""
    grid = draw_grid(evaluation, count)
    if grid is not None:
        grid.save(path)
    return grid is not None


def source_image(prompt: Prompt) -> Image.Image | None:
    """The source image of an edit; None for other prompts."""
    return prompt.images[0] if prompt.task in EDITS and prompt.images else None


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
    side = max(source.size)
    square = ImageOps.pad(source.convert("RGB"), (side, side), color="white")
    return Cell(beside(scale(square, CELL), scale(image, CELL)), lines)
