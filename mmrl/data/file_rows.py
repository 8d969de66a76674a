"""Rows of one text file, by its ending, and of a folder of images with texts beside them.

Text files are read here and not by Hugging Face `datasets`, whose builders guess one type for a
column: they make numbers of the texts `007` and `None` in a CSV file, and fail at lists of texts
and numbers.
"""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""Endings of images, whose texts lie beside them."""
Row = tuple[str, Any]
"""A row after its place for messages, such as `rows.jsonl, line 3`."""
MAX_FIELD = 2**30
"""Longest value of a CSV or TSV file in characters; Python's own limit is too short for images."""


def read_file(path: Path) -> Iterator[Row]:
    """Read the rows of a file with one of the endings in `READERS`, or of a folder for which
    `has_captions` is true, one after the other. Raises ConfigError: names the file and the row that
    cannot be read."""
    try:
        yield from (_captions if path.is_dir() else READERS[path.suffix])(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"'{path}' is not UTF-8 text in rows: {error}. Correct it.") from error


def has_captions(folder: Path) -> bool:
    """Whether a folder holds images with text files beside them, such as `1.png` with `1.txt`, and
    no table of its images."""
    if not folder.is_dir() or any(folder.rglob("metadata.*")):
        return False
    return any(_beside(image).is_file() for image in _images(folder))


def _captions(folder: Path) -> Iterator[Row]:
    """An image and the prompt beside it, from the folder and those inside it, by name."""
    for image in sorted(_images(folder)):
        if not _beside(image).is_file():
            raise ConfigError(
                f"'{image}' has no '{_beside(image).name}' beside it; write its text."
            )
        text = _beside(image).read_text(encoding="utf-8-sig").strip()
        yield f"{image}", {"image": str(image.relative_to(folder)), "prompt": text}


def _images(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in IMAGES)


def _beside(image: Path) -> Path:
    return image.with_suffix(".txt")


def _jsonl(path: Path) -> Iterator[Row]:
    for place, line in _lines(path):
        yield place, _json(line, place)


def _texts(path: Path) -> Iterator[Row]:
    """A prompt from every line that is not blank."""
    return ((place, {"prompt": line.strip()}) for place, line in _lines(path))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    # splitlines() would also cut at separators that JSON allows inside a string
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for n, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path}, line {n}", line


def _listed(path: Path) -> Iterator[Row]:
    """Rows, or texts of prompts, which may be under the key `prompts`."""
    rows = _json(path.read_text(encoding="utf-8-sig"), str(path))
    rows = rows.get("prompts") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise ConfigError(f"'{path}' must hold a JSON list of rows.")
    for n, row in enumerate(rows):
        yield f"{path}, entry {n}", {"prompt": row} if isinstance(row, str) else row


def _table(path: Path) -> Iterator[Row]:
    """Rows of a CSV or TSV file; every value stays text, with leading zeros."""
    csv.field_size_limit(MAX_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        for row in reader:
            place = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                names = ", ".join(reader.fieldnames or [])
                raise ConfigError(f"{place} has not one value for each of the columns {names}.")
            yield place, row


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is not JSON: {error}. Correct or remove it.") from error


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _listed,
    ".csv": _table,
    ".tsv": _table,
    ".txt": _texts,
}
