"""Rows of one file, by its ending. The same rows are the same in every kind of file.

Files are read here and not by Hugging Face `datasets`, whose builders guess one type for a column:
they make numbers of the texts `007` and `None` in a CSV file, and fail at lists of texts and
numbers.
"""

import csv
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from mmrl.config import ConfigError
from mmrl.data.arrow_bytes import batch_rows, holds_bytes
from mmrl.data.image_folder import IMAGE_SUFFIXES

Row = tuple[str, Any]
"""A row after its place for messages, such as `rows.jsonl, line 3`."""
MAX_FIELD = 2**30
"""Longest value of a CSV or TSV file in characters; Python's own limit is too short for images."""


def read_file(path: Path, mapped: bool) -> Iterator[Row]:
    """Read the rows of a file one after the other.

    Args:
        path: ends with one of `SUFFIXES`.
        mapped: whether bytes in a parquet file become buffers of a file in the cache of `datasets`,
            so that all rows may be kept; otherwise they are in memory.

    Raises:
        ConfigError: names the file and the row that cannot be read.
    """
    if path.suffix == ".parquet":
        return _parquet(path, mapped)
    return READERS[path.suffix](path)


def read_sample(row: Any) -> Any:
    """A sample of a WebDataset as a row: `image`, `text` and the keys of its JSON; other rows as
    they are."""
    if not isinstance(row, dict) or "__key__" not in row:
        return row
    kept = {k: v for k, v in row.items() if not k.startswith("__")}
    image = next((kept.pop(suffix) for suffix in IMAGE_SUFFIXES if kept.get(suffix)), None)
    text, fields = kept.pop("txt", None), kept.pop("json", None)
    named = fields if isinstance(fields, dict) else {}
    found = {"image": image, "text": text}
    return {**kept, **named, **{key: value for key, value in found.items() if value}}


def _jsonl(path: Path) -> Iterator[Row]:
    for place, line in _lines(path):
        yield place, _json(line, place)


def _texts(path: Path) -> Iterator[Row]:
    """A prompt from every line that is not blank."""
    return ((place, {"prompt": line.strip()}) for place, line in _lines(path))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    # splitlines() would also cut at separators that JSON allows inside a string
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for n, line in enumerate(_decoded(file, path), start=1):
            if line.strip():
                yield f"{path}, line {n}", line


def _listed(path: Path) -> Iterator[Row]:
    """Rows of a JSON list, of a mapping of rows by name (MathVista), or of a mapping with one list
    of rows (SEED-Bench)."""
    with path.open(encoding="utf-8-sig") as file:
        rows = _json("".join(_decoded(file, path)), str(path))
    if isinstance(rows, dict) and all(isinstance(value, dict | list) for value in rows.values()):
        lists = [value for value in rows.values() if isinstance(value, list)]
        if rows and not lists:
            yield from ((f"{path}, entry {name!r}", row) for name, row in rows.items())
            return
        rows = lists[0] if len(lists) == 1 else rows
    if not isinstance(rows, list):
        raise ConfigError(
            f"'{path}' must hold a JSON list of rows, a mapping of names to rows, or one list"
            " of rows in a mapping."
        )
    yield from ((f"{path}, entry {n}", row) for n, row in enumerate(rows))


def _table(path: Path) -> Iterator[Row]:
    """Rows of a CSV or TSV file; every value stays text, with leading zeros."""
    csv.field_size_limit(MAX_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        reader = csv.DictReader(_decoded(file, path), delimiter=delimiter)
        try:
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                if None in row or None in row.values():
                    names = ", ".join(reader.fieldnames or [])
                    reason = f"{place} has not one value for each of the columns {names}."
                    raise ConfigError(reason)
                yield place, row
        except csv.Error as error:
            _refuse(f"'{path}', line {reader.line_num + 1} cannot be read: {error}", error)


def _archive(path: Path) -> Iterator[Row]:
    """Samples of a WebDataset; their images are slices of the mapped archive."""
    import pyarrow

    try:
        with tarfile.open(path, "r:") as archive, pyarrow.memory_map(str(path)) as file:
            whole = file.read_buffer()
            files = ((m, *_split(m.name)) for m in archive if m.isfile())
            for key, members in groupby((f for f in files if f[2]), key=lambda each: each[1]):
                place, row = f"{path}, sample {key!r}", {"__key__": key}
                for member, _, suffix in members:
                    data = whole.slice(member.offset_data, member.size)
                    row[suffix] = _field(data, suffix, place)
                yield place, read_sample(row)
    except (tarfile.TarError, OSError, pyarrow.ArrowException) as error:
        _refuse(f"'{path}' is not a readable archive: {error}", error)


def _split(name: str) -> tuple[str, str]:
    """Key and column of a file in an archive; hidden files have no column."""
    folder, slash, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return f"{folder}{slash}{stem}", suffix.lower() if stem else ""


def _field(data: Any, suffix: str, place: str) -> Any:
    kind = suffix.rpartition(".")[2]
    if kind in IMAGE_SUFFIXES:
        return data
    try:
        text = data.to_pybytes().decode()
    except UnicodeDecodeError as error:
        if kind not in ("txt", "json"):
            return data
        _refuse(f"{place}: its {suffix} is not UTF-8 text: {error}", error)
    return _json(text, f"{place}: its {suffix}") if kind == "json" else text


def _parquet(path: Path, mapped: bool) -> Iterator[Row]:
    import pyarrow
    from datasets import Dataset
    from datasets.exceptions import DatasetsError
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            batches: Iterable[Any] = file.iter_batches(1000)
            if mapped and any(holds_bytes(column.type) for column in file.schema_arrow):
                batches = Dataset.from_parquet(str(path)).with_format("arrow").iter(1000)  # type: ignore[arg-type,union-attr]
            rows = (row for batch in batches for row in batch_rows(batch))
            yield from ((f"{path}, row {n}", row) for n, row in enumerate(rows))
    except (pyarrow.ArrowException, DatasetsError, OSError) as error:
        _refuse(f"'{path}' is not a readable parquet file: {error}", error)


def _decoded(file: Iterable[str], path: Path) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8 text: {error}. Save it as UTF-8.") from error


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{place} is nested too deeply to be read. Remove it.") from error
    except ValueError as error:  # also for an integer of more digits than Python reads
        _refuse(f"{place} is not JSON: {error}", error)


def _refuse(reason: str, error: Exception) -> NoReturn:
    raise ConfigError(f"{reason}. Correct or remove it.") from error


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _listed,
    ".csv": _table,
    ".tsv": _table,
    ".txt": _texts,
    ".tar": _archive,
}
SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt", ".tar")
