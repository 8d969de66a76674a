"""What trackers beside `metrics.jsonl` see of a run's samples: TensorBoard and Weights & Biases.

Images are one grid, as in `samples/`. Texts are shown with their prompts and scores, verbatim:
what a model wrote is never read as markup.
"""

import textwrap
from typing import Any

import numpy as np
from accelerate import Accelerator

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
        in_tensorboard = tracker.name == "tensorboard"
        if image is not None and in_tensorboard:
            tracker.log_images({name: np.asarray(image)[None]}, step, dataformats="NHWC")
        elif image is not None:
            tracker.log_images({name: [image]}, step)
        elif in_tensorboard:
            blocks = map(_format_block, _rows(result, count))
            tracker.log({name: "\n\n---\n\n".join(blocks)}, step)
        else:
            rows = [list(row.values()) for row in _rows(result, count)]
            tracker.log_table(name, ["prompt", "completion", *result.scores], rows, step=step)


def _rows(result: Evaluation, count: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": result.prompts[n].text,
            "completion": result.completions[n],
            **{key: scores[n] for key, scores in result.scores.items()},
        }
        for n in spread(range(len(result.completions)), count)
    ]


def _format_block(row: dict[str, Any]) -> str:
    prompt, completion, *scores = row.items()
    shown = ", ".join(f"{key} {value:.3g}" for key, value in scores)
    return f"prompt:\n\n{_code(prompt[1])}\n\n{shown}:\n\n{_code(completion[1])}"


def _code(text: str) -> str:
    """Text as a block of code in Markdown, by indentation, which nothing within it ends."""
    return textwrap.indent("\n".join(text.splitlines()) or "(empty)", "    ", lambda _: True)
