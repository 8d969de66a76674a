"""Rows of files and patterns of files, of folders, and of data sets of the Hugging Face hub, read
whole or one after the other.

Nulls are left out, because columnar files give every clause the keys of all clauses. Of a data set
that is read whole, images are not decoded and bytes stay in its files until they are read, so it
may be larger than the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, NotHereError, check
from mmrl.config.checks import is_hub_id
from mmrl.data.file_rows import READERS, Row, has_captions, read_file

if TYPE_CHECKING:
    from datasets import IterableDataset

Key = str | int
BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}
"""Files that `datasets` reads, and by which of its builders."""
SUFFIXES = (*READERS, *BUILDERS)
BATCH = 100
"""Rows that are in memory together while a data set is read."""


@dataclass(frozen=True)
class StoredBytes:
    """Bytes in a row of a data set, a table in the format `arrow`; `keys` are the column, and where
    they are in its value."""

    table: Any
    row: int
    keys: tuple[Key, ...]

    def read(self) -> bytes:
        """Read them from the files of the data set."""
        [value] = self.table[self.row].to_pylist()
        for key in self.keys:
            value = value[key]
        return value


def read_rows(source: str, config: str | None = None, split: str | None = None) -> Iterator[Row]:
    """Read every row of a source with its place for messages, such as `rows.jsonl, line 3`: of a
    file with one of `SUFFIXES`, a pattern such as `shards/*.tar`, or a folder of images with texts
    beside them; otherwise of a folder or hub id for `datasets.load_dataset`, by its configuration
    and split, with slices as in `train[:-500]`; None is `train`.

    Raises NotHereError: a data set of the hub that does not exist or cannot be downloaded. Raises
    ConfigError: a file, configuration or split that is not there or cannot be read."""
    files = _find_files(source, config, split)
    if _read_here(files):
        for file in files:
            yield from ((place, _without_nulls(row)) for place, row in read_file(Path(file)))
        return
    table = _load(source, files, config, split).with_format("arrow")
    for first in range(0, len(table), BATCH):
        rows = table_rows(
            table[first : first + BATCH],
            lambda row, keys, first=first: StoredBytes(table, first + row, keys),
        )
        for n, row in enumerate(rows, start=first):
            yield f"{source}, row {n}", _without_nulls(row)


def open_rows(source: str, config: str | None = None, split: str | None = None) -> IterableDataset:
    """Open rows to be read one after the other, each by `read_row`; see `read_rows`. Raises
    NotHereError, ConfigError: see `read_rows`."""
    from datasets import IterableDataset

    files = _find_files(source, config, split)
    if _read_here(files):
        return IterableDataset.from_generator(_stream, gen_kwargs={"files": files})  # type: ignore[return-value]
    return _load(source, files, config, split, streaming=True).with_format("arrow")


def read_row(row: Any, place: str) -> Row:
    """An item of `open_rows` with its place as `read_rows` gives them; `place` is that of one that
    does not know its file and line."""
    if isinstance(row, dict):
        place, row = row["place"], row["row"]
    else:
        [row] = table_rows(row)
    return place, _without_nulls(row)


def _find_files(source: str, config: str | None, split: str | None) -> list[str]:
    """The files of a source in the order of their names; none for a hub id, or for a folder other
    than of images with texts beside them, its own file. Raises ConfigError: see `read_rows`."""
    path, files = Path(source), [source]
    if has_magic(source) and not path.exists():
        files = sorted(name for name in glob(source, recursive=True) if Path(name).is_file())
        if not files:
            raise ConfigError(f"no file matches the pattern '{source}'; give another or a hub id.")
    elif path.is_dir() or not (path.is_file() or path.suffix in SUFFIXES):
        if not has_captions(path):
            return []
    elif not path.is_file():
        raise ConfigError(f"'{source}' is not a file; give a prompt file or a hub id.")
    for key, value in (("data.config", config), ("data.split", split)):
        check(value is None, key, value, "null for a file", f"'{source}' holds one set of rows.")
    if path.is_dir():
        return files
    kinds = {Path(file).suffix for file in files}
    if unknown := kinds - set(SUFFIXES):
        kind = next(iter(unknown)) or "without an ending"
        raise ConfigError(f"'{source}' is a file {kind}; what is read is {', '.join(SUFFIXES)}.")
    fits, allowed = len(kinds) == 1 or kinds <= set(READERS), "a pattern of files of one kind"
    check(fits, "the data", source, allowed)
    return files


def _read_here(files: Sequence[str]) -> bool:
    """Whether files are read by `read_file`, not by `datasets`."""
    return bool(files) and (Path(files[0]).is_dir() or Path(files[0]).suffix in READERS)


def _stream(files: Sequence[str]) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from ({"place": place, "row": row} for place, row in read_file(Path(file)))


def _load(
    source: str, files: list[str], config: str | None, split: str | None, streaming: bool = False
) -> Any:
    import pyarrow
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    if not files and not Path(source).is_dir() and (not is_hub_id(source) or source.isdigit()):
        raise ConfigError(f"'{source}' is neither a {', '.join(SUFFIXES)} file nor a hub id.")
    name = BUILDERS[Path(files[0]).suffix] if files else source
    options: dict[str, Any] = {"data_files": files or None, "streaming": streaming}
    try:
        return load_dataset(name, config, split=split or "train", **options)
    except (OSError, ValueError, TypeError, DatasetsError, pyarrow.ArrowException) as error:
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {(str(cause).splitlines() or ['no reason given'])[0]}"
        away = isinstance(error, OSError) and not files and is_hub_id(source)
        said = "is no data set that the hub returned" if away else "cannot be loaded"
        asked = f"'{source}' (data.config {config or 'null'}, data.split {split or 'train'})"
        raise (NotHereError if away else ConfigError)(f"{asked} {said}: {reason}.") from error


def table_rows(
    table: Any, refer: Callable[[int, tuple[Key, ...]], Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow table; bytes as they are, or what `refer` makes of their row and
    keys. A column whose values have several types is kept as JSON by `datasets`; such are restored.
    """
    kinds = {column.name: column.type for column in table.schema}
    if not any(word in str(table.schema.types) for word in ("binary", "json")):
        yield from table.to_pylist()
        return
    for n, row in enumerate(table.to_pylist()):
        where = None if refer is None else lambda keys, n=n: refer(n, keys)
        yield {name: _restore(value, kinds[name], (name,), where) for name, value in row.items()}


def _restore(
    value: Any, kind: Any, keys: tuple[Key, ...], refer: Callable[[Any], Any] | None
) -> Any:
    if isinstance(value, bytes):
        return value if refer is None else refer(keys)
    if isinstance(value, dict):
        return {k: _restore(v, kind.field(k).type, (*keys, k), refer) for k, v in value.items()}
    if isinstance(value, list):
        inner = getattr(kind, "value_type", None)
        return [_restore(item, inner, (*keys, n), refer) for n, item in enumerate(value)]
    if isinstance(value, str) and getattr(kind, "extension_name", "") == "arrow.json":
        return _restore_json(value)
    return value


def _restore_json(text: str) -> Any:
    """The value of JSON. A bare number or word is left a text: `datasets` writes the texts `5`,
    `007` and `null` as they are, without quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | list | dict) else text


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
