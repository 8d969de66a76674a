"""Folders of images with their captions beside them: `a.png` with `a.txt`, or with `a.json`.

Folders with a `metadata.csv`, `.jsonl` or `.parquet` are read by the ImageFolder of `datasets`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError

IMAGE_SUFFIXES = ("png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff")
"""Endings of files, and columns of a WebDataset, that are images."""


def is_captioned(folder: Path) -> bool:
    """Whether a folder has an image with a caption beside it, and no metadata of an ImageFolder."""
    if any(folder.glob("metadata.*")):
        return False
    return any(_find_caption(path) is not None for path in _find_images(folder))


def read_captioned(folder: Path) -> Iterator[dict[str, Any]]:
    """Read rows in the order of their paths: `image`, a path below the folder, and `text` or the
    keys of the JSON.

    Raises:
        ConfigError: an image without a caption, or one that is not UTF-8 or not a JSON object.
    """
    for path in _find_images(folder):
        caption = _find_caption(path)
        if caption is None:
            raise ConfigError(f"'{path}' has no caption: {path.stem}.txt or {path.stem}.json.")
        yield {"image": str(path.relative_to(folder)), **_read_caption(caption)}


def _find_images(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower()[1:] in IMAGE_SUFFIXES)


def _find_caption(path: Path) -> Path | None:
    beside = (path.with_suffix(suffix) for suffix in (".txt", ".json"))
    return next((caption for caption in beside if caption.is_file()), None)


def _read_caption(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        row = {"text": text.strip()} if path.suffix == ".txt" else json.loads(text)
    except ValueError as error:  # also of JSON and of UTF-8
        raise ConfigError(f"'{path}' cannot be read: {error}. Correct or remove it.") from error
    if not isinstance(row, dict):
        raise ConfigError(f"'{path}' must hold a JSON object, such as {{\"text\": …}}.")
    return row
