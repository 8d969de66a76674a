"""Rows of JSONL, JSON, CSV, TSV, parquet and text files, of WebDataset archives and folders of
images, and of data sets of the Hugging Face hub.

Bytes in columns, such as images, are not read: a row has a `pyarrow.Buffer` of the data set that
Hugging Face `datasets` maps into memory, so a set may be larger than the memory.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, NotHereError, check
from mmrl.config.checks import is_hub_id
from mmrl.data.arrow_bytes import buffer_values, holds_bytes
from mmrl.data.image_folder import IMAGE_SUFFIXES, is_captioned, read_captioned

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
BUILDERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".parquet": ("parquet", {}),
    ".tar": ("webdataset", {}),
}
"""How `datasets` reads files: those of a pattern, archives, and all that are streamed."""
MAX_FIELD = 2**30
"""Longest value of a CSV or TSV file in characters; Python's own limit is too short for images."""


def read_rows(
    source: str, config: str | None = None, split: str | None = None
) -> Iterator[tuple[str, Any]]:
    """Read every row with its place for messages, such as `rows.jsonl, line 3`.

    Args:
        source: a file with one of `SUFFIXES`; a `.tar` or a pattern such as `shards/*.tar`; a
            folder of images with captions, see `mmrl.data.image_folder`; otherwise a folder or hub
            id for `datasets.load_dataset`.
        config: configuration of a hub data set.
        split: of a hub data set, with slices as in `train[:-500]`; None is `train`.

    Raises:
        NotHereError: a data set of the hub that does not exist or cannot be downloaded.
        ConfigError: no such file, one that cannot be read, one of another type, an unknown
            configuration or split, or a configuration or split for a file.
    """
    path = Path(source)
    if path.suffix not in SUFFIXES or has_magic(source):
        if path.is_dir() and is_captioned(path):
            return _numbered(source, read_captioned(path))
        if path.is_file() and path.suffix not in BUILDERS:
            kind = f"of the type {path.suffix}" if path.suffix else "a file without an ending"
            raise ConfigError(f"'{source}' is {kind}; what is read is {', '.join(SUFFIXES)}.")
        rows = _mapped(_dataset(source, config, split or "train"))
        return _numbered(source, map(read_sample, rows))
    for key, value in (("data.config", config), ("data.split", split)):
        check(value is None, key, value, "null for a file", f"'{source}' holds one set of rows.")
    if not path.is_file():
        raise ConfigError(f"'{source}' is not a file; give a prompt file or a hub id.")
    readers = {
        ".jsonl": _jsonl,
        ".json": _listed,
        ".csv": _table,
        ".tsv": _table,
        ".parquet": _parquet,
        ".txt": _lines,
    }
    return readers[path.suffix](path)


def open_rows(source: str, config: str | None = None, split: str | None = None) -> IterableDataset:
    """Open rows to be read one after the other, images as they are stored; see `read_rows`.

    Raises:
        NotHereError, ConfigError: see `read_rows`.
    """
    from datasets import IterableDataset

    path = Path(source)
    if path.suffix in SUFFIXES and not path.is_file() and not has_magic(source):
        raise ConfigError(f"'{source}' is not a file; give a file of rows or a hub id.")
    if path.is_dir() and is_captioned(path):
        return IterableDataset.from_generator(read_captioned, gen_kwargs={"folder": path})  # type: ignore[return-value]
    rows = _dataset(source, config, split or "train", streaming=True)
    # without known features, as of a JSON list, no column is an image
    return rows.decode(False) if rows.features else rows


def read_row(row: Any) -> Any:
    """A row of `open_rows` as `read_rows` gives it."""
    return _without_nulls(read_sample(row))


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


def _jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    # splitlines() would also cut at separators that JSON allows inside a string
    for n, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            place = f"{path}, line {n}"
            yield place, _json(line, place)


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """A prompt from every line that is not blank."""
    for n, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {n}", {"prompt": line.strip()}


def _listed(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows of a JSON list, of a mapping of rows by name (MathVista), or of a mapping with one list
    of rows (SEED-Bench)."""
    rows = _json(_text(path), str(path))
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


def _table(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows of a CSV or TSV file; every value stays text, with leading zeros."""
    csv.field_size_limit(MAX_FIELD)
    delimiter = "\t" if path.suffix == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(_text(path), newline=""), delimiter=delimiter)
    for row in _parsed(reader, path):
        place = f"{path}, line {reader.line_num}"
        if None in row or None in row.values():
            names = ", ".join(reader.fieldnames or [])
            raise ConfigError(f"{place} has not one value for each of the columns {names}.")
        yield place, row


def _parsed(reader: csv.DictReader[str], path: Path) -> Iterator[dict[str | Any, str | Any]]:
    try:
        yield from reader
    except csv.Error as error:
        raise ConfigError(
            f"'{path}', line {reader.line_num + 1} cannot be read: {error}. Correct or remove it."
        ) from error


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow
    from datasets import Dataset
    from datasets.exceptions import DatasetsError
    from pyarrow.parquet import read_schema, read_table

    try:
        if any(holds_bytes(column.type) for column in read_schema(path)):
            rows = _mapped(Dataset.from_parquet(str(path)))  # type: ignore[arg-type]
        else:
            rows = read_table(path).to_pylist()
    except (pyarrow.ArrowException, DatasetsError) as error:
        raise ConfigError(f"'{path}' is not a readable parquet file: {error}") from error
    return _numbered(str(path), rows)


def _numbered(source: str, rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{source}, row {n}", _without_nulls(row)) for n, row in enumerate(rows))


def _mapped(rows: Dataset) -> Iterator[Any]:
    """Rows of a data set, not decoded; bytes stay in its memory map."""
    if not any(holds_bytes(column.type) for column in rows.features.arrow_schema):
        yield from rows
        return
    for batch in rows.with_format("arrow").iter(1000):
        table: Any = batch
        columns = [
            [item for part in column.chunks for item in buffer_values(part)] for column in table
        ]
        for values in zip(*columns, strict=True):
            yield dict(zip(table.column_names, values, strict=True))


def _dataset(source: str, config: str | None, split: str, streaming: bool = False) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    asked = f"'{source}' (data.config {config or 'null'}, data.split {split})"
    files, path, builder = {}, Path(source), source
    if path.suffix in BUILDERS and (path.is_file() or has_magic(source)):
        check(config is None, "data.config", config, "null for files")
        builder, options = BUILDERS[path.suffix]
        files = {"data_files": source, **options}
    try:
        return load_dataset(builder, config, split=split, streaming=streaming, **files)
    except OSError as error:
        kind = NotHereError if is_hub_id(source) else ConfigError
        raise kind(
            f"{asked} is neither a {', '.join(SUFFIXES)} file nor a data set that the hub"
            f" returned ({_reason(error)})."
        ) from error
    except (ValueError, DatasetsError) as error:
        raise ConfigError(f"{asked} cannot be loaded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"


def _without_nulls(value: Any) -> Any:
    """Drop nulls: columnar files give every clause the keys of all clauses."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8 text: {error}. Save it as UTF-8.") from error


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{place} is not JSON: {error}. Correct or remove it.") from error
    except RecursionError as error:
        raise ConfigError(f"{place} is nested too deeply to be read. Remove it.") from error
