"""The images or videos of an evaluation on one page, each with its prompt and its first score."""

import math
from pathlib import Path

from PIL import Image, ImageOps

from mmrl.data.prompts import spread
from mmrl.models.task_names import EDITS
from mmrl.rollouts.held_out import Evaluation
from mmrl.run.image_grid import BLACK, Cell, beside, page, scale
from mmrl.types import Prompt, Video
from mmrl.types.video import write_clip

CELL = 128
"""Width of an image in pixels."""
MOST_FRAMES = 24
"""Of a grid of videos."""
GREEN, RED = (10, 125, 51), (179, 38, 30)


def draw_grid(
    evaluation: Evaluation, count: int, columns: int = 8, time: float = 0.5
) -> Image.Image | None:
    """Draw `count` images, spread over all of them, with prompts and scores; None for texts. Videos
    show the frame at a `time`, from 0 for the first to 1 for the last.

    Equal prompts and counts give equal places, so grids of two steps can be compared.
    """
    images = [n for n, c in enumerate(evaluation.completions) if not isinstance(c, str)]
    if not images or count < 1:
        return None
    return page([_cell(evaluation, n, time) for n in spread(images, count)], columns)


def write_grid(evaluation: Evaluation, path: Path, count: int) -> Path | None:
    """Write the grid of an evaluation, of videos as an animated WebP beside `path`, with at most
    `MOST_FRAMES` frames; return where, None for texts."""
    videos = [c for c in evaluation.completions if isinstance(c, Video)]
    number = min(MOST_FRAMES, max((len(video) for video in videos), default=1))
    times = [n / max(1, number - 1) for n in range(number)] if videos else [0.5]
    pages = [draw_grid(evaluation, count, time=time) for time in times]
    sheets = [sheet for sheet in pages if sheet is not None]
    if not sheets:
        return None
    if not videos:
        sheets[0].save(path)
        return path
    path = path.with_suffix(".webp")
    path.write_bytes(write_clip(sheets, 1000 * len(videos[0]) / videos[0].fps / number))
    return path


def source_image(prompt: Prompt) -> Image.Image | None:
    """The source image of an edit; None for other prompts."""
    return prompt.images[0] if prompt.task in EDITS and prompt.images else None


def _cell(evaluation: Evaluation, n: int, time: float) -> Cell:
    """One image, or the frame of a video at a time, an edit beside its source, with its prompt and
    its first score."""
    image = evaluation.completions[n]
    if isinstance(image, Video):
        image = image.image(round(time * (len(image) - 1)))
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
