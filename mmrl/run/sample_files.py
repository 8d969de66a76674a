"""Files of completions in `samples/` of a run directory: their names, and what is in them.

A directory may come from anywhere: what is damaged is named, nothing in it is executed.
"""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from mmrl.config import ConfigError

if TYPE_CHECKING:
    import pyarrow

HELD_OUT, ROLLOUTS = "eval", "completions"
"""Kinds of files: completions of an evaluation, and rollouts of a step."""
FIXED = ("step", "id", "prompt", "image", "completion")
FIXED += ("tokens", "written_at", "logprobs", "grid", "blocks")
"""Columns that are no scores."""
LARGEST_FILE, MOST_PIXELS, SIDE = 2**30, 2**26, 160


def samples_of(run: Path) -> Path:
    """Where the completions of a run are."""
    return run / "samples"


def sample_file(run: Path, kind: str, task: str, step: int) -> Path:
    """Where the completions of a task and step are, or will be."""
    return samples_of(run) / f"{kind}_{task}_{step:06d}.parquet"


def find_samples(folder: Path, kind: str) -> dict[str, dict[int, Path]]:
    """The files of a kind in a folder, by task and then by step, both in order."""
    name = re.compile(rf"{kind}_(.+)_(\d+)\.parquet")
    matched = ((name.fullmatch(path.name), path) for path in folder.glob("*.parquet"))
    found: dict[str, dict[int, Path]] = {}
    for task, step, path in sorted((m[1], int(m[2]), path) for m, path in matched if m):
        found.setdefault(task, {})[step] = path
    return found


def read_samples(path: Path) -> pyarrow.Table:
    """The completions of a file, see `mmrl.training.completions`.

    Raises:
        ConfigError: it is too large, or holds no completions.
    """
    import pyarrow
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{path.name} is larger than 1 GiB.")
        table = pq.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error
    if not len(table) or not {"prompt", "completion"} <= {*table.column_names}:
        raise ConfigError(f"{path.name} holds no completions.")
    return table


def score_names(table: pyarrow.Table) -> list[str]:
    """The columns that are scores."""
    return [name for name in table.column_names if name not in FIXED]


def embed_stored(stored: Any, side: int = SIDE) -> str:
    """An `<img>` that holds a recorded image itself; a remark in place of one that is damaged."""
    try:
        with Image.open(io.BytesIO(stored["bytes"]), formats=("PNG", "JPEG", "WEBP")) as image:
            if image.width * image.height > MOST_PIXELS:
                return "(too large)"
            return embed(image.convert("RGB"), side)
    except (OSError, ValueError, TypeError, KeyError, Image.DecompressionBombError):
        return "(no image)"


def embed(image: Image.Image, side: int = SIDE) -> str:
    """The HTML of an image, at most `side` pixels wide and high; small ones are enlarged without
    blur."""
    small = image.copy()
    small.thumbnail((side, side))
    buffer = io.BytesIO()
    small.save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    width = small.width * max(1, side // 2 // max(small.size))
    style = f"width:{width}px;height:auto;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:image/png;base64,{data}">'
