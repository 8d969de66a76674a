"""Files of completions in `samples/` of a run directory: their names, and what is shown of them.

A directory may come from anywhere: what is damaged is named, nothing in it is executed.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import DatasetCardData
from PIL import Image

from mmrl.config import ConfigError
from mmrl.run.metrics_file import is_number
from mmrl.types import Video
from mmrl.types.video import count_frames, read_clip

if TYPE_CHECKING:
    import pyarrow

HELD_OUT, ROLLOUTS = "eval", "completions"
"""Kinds of files: completions of an evaluation, and rollouts of a step."""
FIXED = ("step", "id", "prompt", "image", "completion")
FIXED += ("tokens", "trace", "logprobs", "grid", "blocks")
"""Columns that are no scores."""
LARGEST_FILE, MOST_PIXELS, SIDE = 2**30, 2**26, 160
TITLES = {HELD_OUT: "Held-out completions", ROLLOUTS: "Rollouts"}
MOST_ROWS, MOST_CHARACTERS = 9, 4000
"""Completions of a step, spread from the best to the worst, and characters of each."""


def sample_file(run: Path, kind: str, task: str, step: int) -> Path:
    """Where the completions of a task and step are, or will be."""
    return run / "samples" / f"{kind}_{task}_{step:06d}.parquet"


def find_samples(folder: Path, kind: str) -> dict[str, dict[int, Path]]:
    """The files of a kind in a folder, by task and then by step, both in order."""
    name = re.compile(rf"{kind}_(.+)_(\d+)\.parquet")
    matched = ((name.fullmatch(path.name), path) for path in folder.glob("*.parquet"))
    found: dict[str, dict[int, Path]] = {}
    for task, step, path in sorted((m[1], int(m[2]), path) for m, path in matched if m):
        found.setdefault(task, {})[step] = path
    return found


def find_completions(run: Path) -> dict[str, Path]:
    """Files of held-out completions, as `<task>, held out, step <step>`, then those of rollouts, as
    `<task>, step <step>`, in order of task and step."""
    return {
        f"{task}{remark}, step {step}": path
        for kind, remark in ((HELD_OUT, ", held out"), (ROLLOUTS, ""))
        for task, files in find_samples(run / "samples", kind).items()
        for step, path in files.items()
    }


def write_data_card(folder: Path, repository: str) -> None:
    """Write the README.md by which `datasets` loads the files of each kind and task of a folder."""
    import pyarrow as pa
    from datasets.info import DatasetInfo, DatasetInfosDict, Features
    from pyarrow.parquet import read_schema

    configs, infos = [], DatasetInfosDict()
    for kind in TITLES:
        for task, files in find_samples(folder, kind).items():
            name, schemas = f"{kind}_{task}", [*map(read_schema, files.values())]
            columns = pa.unify_schemas(schemas, promote_options="permissive")
            infos[name] = DatasetInfo(features=Features.from_arrow_schema(columns))
            # not `*`, as another task may be called `<task>_1`
            configs.append({"config_name": name, "data_files": f"{name}_{'[0-9]' * 6}.parquet"})
    infos.to_dataset_card_data(data := DatasetCardData(configs=configs))
    title = f"# Completions of a run of mmrl\n\n`load_dataset('{repository}', …)`"
    (folder / "README.md").write_text(f"---\n{data}\n---\n\n{title}\n", encoding="utf-8")


def read_samples(path: Path) -> pyarrow.Table:
    """The completions of a file, see `mmrl.training.completions`. Raises ConfigError: it is too
    large, or holds no completions."""
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
    """An `<img>` that holds a recorded image or clip; a remark in place of one that is damaged."""
    try:
        with Image.open(io.BytesIO(stored["bytes"]), formats=("PNG", "JPEG", "WEBP")) as image:
            frames = count_frames(image)
            if image.width * image.height * frames > MOST_PIXELS:
                return "(too large)"
            return embed(read_clip(image) if frames > 1 else image.convert("RGB"), side)
    except (OSError, ValueError, TypeError, KeyError, Image.DecompressionBombError):
        return "(no image)"


def embed(image: Image.Image | Video, side: int = SIDE) -> str:
    """The HTML of an image or video in at most `side` pixels; small ones are enlarged sharply."""
    small = (image.image(0) if isinstance(image, Video) else image).copy()
    small.thumbnail((side, side))
    buffer, form = io.BytesIO(), "png"
    if isinstance(image, Video):
        buffer, form = io.BytesIO(image.clip(side)), "webp"
    else:
        small.save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    width = small.width * max(1, side // 2 // max(small.size))
    style = f"width:{width}px;height:auto;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:image/{form};base64,{data}">'


def choose_samples(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Tables of completions by title, of the first and the last step, from the best to the worst,
    as the template of a report has them."""
    return {
        f"{title}: {task}": [_table(n, files[n]) for n in dict.fromkeys((min(files), max(files)))]
        for kind, title in TITLES.items()
        for task, files in find_samples(run / "samples", kind).items()
    }


def _table(step: int, path: Path) -> dict[str, Any]:
    try:
        table = read_samples(path)
    except ConfigError as error:
        return {"problem": str(error)}
    scores = score_names(table)
    main = "reward" if "reward" in scores else next(iter(scores), None)
    values = table[main].to_pylist() if main else [0.0] * len(table)
    ranks = [-value if is_number(value) else math.inf for value in values]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    count = min(MOST_ROWS, len(order))
    shown = [order[n * (len(order) - 1) // max(1, count - 1)] for n in range(count)]
    rows = [_row(row, scores) for row in table.take(shown).to_pylist()]
    return {"step": step, "scores": scores, "rows": rows}


def _row(row: dict[str, Any], scores: Sequence[str]) -> dict[str, Any]:
    stored = isinstance(completion := row["completion"], dict)
    return {
        "prompt": _cut(row["prompt"]),
        "image": embed_stored(row["image"]) if row.get("image") else "",
        "completion": "" if stored else _cut(completion),
        "drawn": embed_stored(completion) if stored else "",
        "scores": [row[name] if is_number(row[name]) else None for name in scores],
    }


def _cut(text: Any) -> str:
    shown = str(text or "")
    return f"{shown[:MOST_CHARACTERS]} …" if len(shown) > MOST_CHARACTERS else shown
