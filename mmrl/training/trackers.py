"""What trackers beside `metrics.jsonl` see of a run's samples: TensorBoard, Trackio, W&B.

Images are one grid, as in `samples/`. Texts are shown with their prompts and scores, verbatim:
what a model wrote is never read as markup.
"""

import importlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from PIL import Image

from mmrl.config import to_plain, to_yaml
from mmrl.data.prompts import spread
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import draw_grid

SHOWING = ("tensorboard", "trackio", "wandb")
"""Trackers that are shown samples."""


def start_trackers(accelerator: Accelerator, run: Path, config: Any, resumed: bool) -> None:
    """Start the trackers of a run, and show them its settings."""
    # wandb writes into the current folder by default
    wandb = {"dir": str(run), "name": run.name}
    trackio = {"name": run.name, "resume": "allow" if resumed else "never", "embed": False}
    accelerator.init_trackers("mmrl", None, {"wandb": wandb, "trackio": trackio})
    settings = {key: json.dumps(value, default=str) for key, value in to_plain(config).items()}
    for tracker in accelerator.trackers:
        if tracker.name == "tensorboard":  # hyperparameters would be listed as a second run
            tracker.log({"settings": _code(to_yaml(config))}, 0)
        else:
            tracker.store_init_configuration(settings)


def log_samples(
    accelerator: Accelerator, name: str, step: int, result: Evaluation, count: int
) -> None:
    """Show at most `count` samples, spread over all, under a name in every started tracker."""
    if count < 1 or not result.completions:
        return
    image, rows = draw_grid(result, count), _rows(result, count)
    for tracker in accelerator.trackers:
        if tracker.name not in SHOWING:
            continue
        if tracker.name != "tensorboard":
            tracker.log({name: _show(tracker.name, image, rows)}, step)
        elif image is not None:
            tracker.log_images({name: np.asarray(image)[None]}, step, dataformats="NHWC")
        else:
            tracker.log({name: "\n\n---\n\n".join(map(_format_block, rows))}, step)


def _show(tracker: str, image: Image.Image | None, rows: Sequence[Mapping[str, Any]]) -> Any:
    """An image, or else a table of texts, of Trackio or W&B; Trackio reads texts as Markdown."""
    module = importlib.import_module(tracker)
    if image is not None:
        return module.Image(image)
    verbatim = _code if tracker == "trackio" else str
    data = [[verbatim(v) if isinstance(v, str) else v for v in row.values()] for row in rows]
    return module.Table(columns=list(rows[0]), data=data)


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
