"""What a run directory holds: its settings and its recorded completions, read with care.

A directory may come from anywhere: what is damaged is left out or named, nothing in it is executed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from PIL import Image
from yaml import YAMLError

from mmrl.config import ConfigError
from mmrl.data.lazy_images import LazyImage
from mmrl.run.sample_files import HELD_OUT, ROLLOUTS, find_samples, samples_of

MOST_ROWS = 4096
"""Rows that are read of a file of completions."""
LARGEST_FILE = 2**30
DEEPEST = 5
"""Folders between a place that is named and the runs below it."""
SIDE = 128
"""Largest side of a recorded image on the page, in pixels."""


def find_runs(places: Sequence[str]) -> dict[str, Path]:
    """Run directories by their path as a text: the places themselves, or what is below them, down
    to `DEEPEST` folders."""
    found = [path for place in places for path in _runs_below(Path(place), DEEPEST)]
    return {str(path): path for path in found}


def _runs_below(place: Path, depth: int) -> Iterator[Path]:
    """A run directory itself; of another one, those in its folders."""
    if (place / "metrics.jsonl").is_file() or (place / "config.yaml").is_file():
        yield place
    elif depth > 0 and place.is_dir():
        for path in sorted(place.iterdir()):
            yield from _runs_below(path, depth - 1)


def read_settings(run: Path) -> dict[str, Any]:
    """`config.yaml` of a run; empty where it cannot be read."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError):
        return {}
    return {str(k): v for k, v in content.items()} if isinstance(content, dict) else {}


def find_completions(run: Path) -> dict[str, Path]:
    """Files of held-out completions, as `<task>, held out, step <step>`, then those of rollouts, as
    `<task>, step <step>`, in order of task and step."""
    return {
        f"{task}{remark}, step {step}": path
        for kind, remark in ((HELD_OUT, ", held out"), (ROLLOUTS, ""))
        for task, files in find_samples(samples_of(run), kind).items()
        for step, path in files.items()
    }


def read_completions(path: Path) -> list[dict[str, Any]]:
    """The first rows of a file, see `mmrl.training.completions`.

    Raises:
        ConfigError: it is too large, or holds no completions.
    """
    import pyarrow
    import pyarrow.parquet as pq

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"'{path}' is larger than 1 GiB.")
        rows: list[dict[str, Any]] = []
        for batch in pq.ParquetFile(path).iter_batches(256):
            rows += batch.to_pylist()
            if len(rows) >= MOST_ROWS:
                break
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"'{path}' holds no completions of a run ({error}).") from error
    if not rows or not {"prompt", "completion"} <= rows[0].keys():
        raise ConfigError(f"'{path}' has no columns prompt and completion.")
    return rows[:MOST_ROWS]


def open_stored(stored: Any, place: str) -> Image.Image:
    """A recorded image.

    Raises:
        ConfigError: it is damaged, too large or of another format, see `LazyImage`.
    """
    content = stored.get("bytes") if isinstance(stored, Mapping) else None
    if not isinstance(content, bytes):
        raise ConfigError(f"{place}: no image")
    return LazyImage(content, place).open()


def embed(image: Image.Image, side: int = SIDE) -> str:
    """An `<img>` that holds the image itself, enlarged without blur or reduced to `side`."""
    shown = image.copy()
    if max(shown.size) > side:
        shown.thumbnail((side, side))
    buffer = io.BytesIO()
    shown.save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    style = f"width:{side}px;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:image/png;base64,{data}">'
