"""What trackers beside `metrics.jsonl` see of a run's samples: TensorBoard and Weights & Biases.

Images are one grid, as in `samples/`. Texts are shown with their prompts and scores, verbatim:
what a model wrote is never read as markup.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from accelerate import Accelerator
from PIL import Image

from eval.evaluation import Evaluation
from eval.results import draw_grid
from mmrl.data.prompts import spread


def log_samples(
    accelerator: Accelerator, name: str, step: int, result: Evaluation, count: int
) -> None:
    """Show samples in every started tracker.

    Args:
        accelerator: its trackers.
        name: tag of the samples.
        step: of the run.
        result: prompts, completions and scores.
        count: largest number of samples, spread over all.
    """
    if count < 1:
        return
    image = draw_grid(result, count)
    for tracker in accelerator.trackers:
        if image is not None:
            _IMAGES[tracker.name](tracker, name, step, image)
        else:
            _TEXTS[tracker.name](tracker, name, step, _columns(result), _rows(result, count))


def _columns(result: Evaluation) -> list[str]:
    return ["prompt", "completion", *result.scores]


def _rows(result: Evaluation, count: int) -> list[list[Any]]:
    return [
        [
            result.prompts[n].text,
            result.completions[n],
            *(each[n] for each in result.scores.values()),
        ]
        for n in spread(range(len(result.completions)), count)
    ]


def _images_to_tensorboard(tracker: Any, name: str, step: int, image: Image.Image) -> None:
    tracker.log_images({name: np.asarray(image)[None]}, step, dataformats="NHWC")


def _images_to_wandb(tracker: Any, name: str, step: int, image: Image.Image) -> None:
    tracker.log_images({name: [image]}, step)


def _texts_to_tensorboard(
    tracker: Any, name: str, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    blocks = []
    for prompt, completion, *scores in rows:
        shown = ", ".join(f"{k} {v:.3g}" for k, v in zip(columns[2:], scores, strict=True))
        blocks.append(f"prompt:\n\n{_code(prompt)}\n\n{shown}:\n\n{_code(completion)}")
    tracker.log({name: "\n\n---\n\n".join(blocks)}, step)


def _code(text: str) -> str:
    """Text as a block of code in Markdown, by indentation, which nothing within it ends."""
    return textwrap.indent("\n".join(text.splitlines()) or "(empty)", "    ", lambda _: True)


def _texts_to_wandb(
    tracker: Any, name: str, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    tracker.log_table(name, list(columns), [list(row) for row in rows], step=step)


_IMAGES: dict[str, Callable[[Any, str, int, Image.Image], None]] = {
    "tensorboard": _images_to_tensorboard,
    "wandb": _images_to_wandb,
}
_TEXTS: dict[str, Callable[..., None]] = {
    "tensorboard": _texts_to_tensorboard,
    "wandb": _texts_to_wandb,
}
