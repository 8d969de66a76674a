"""Images in the folders that GenEval's own evaluator reads.

<out>/00000/metadata.jsonl        the prompt's row
<out>/00000/samples/00000.png     its images
<out>/00000/grid.png              the same side by side
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from mmrl.types import Prompt


def write_folder(out: Path, prompts: Sequence[Prompt], images: Sequence[Image.Image]) -> None:
    """Write images prompt by prompt.

    Args:
        out: created if needed.
        prompts: one per prompt of the benchmark, in its order.
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
        for k, image in enumerate(mine):
            image.save(folder / "samples" / f"{k:05d}.png")
        _side_by_side(mine).save(folder / "grid.png")


def _side_by_side(images: Sequence[Image.Image]) -> Image.Image:
    width, height = images[0].size
    grid = Image.new("RGB", (width * len(images), height))
    for k, image in enumerate(images):
        grid.paste(image, (k * width, 0))
    return grid
