"""Rows of files and patterns of files, of folders, and of data sets of the Hugging Face hub, read
whole or one after the other.

Nulls are left out, because columnar files give every clause the keys of all clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, NotHereError, check
from mmrl.config.checks import is_hub_id
from mmrl.data.file_rows import READERS, Row, read_file
from mmrl.data.stored_rows import stored_rows, table_rows

if TYPE_CHECKING:
    from datasets import IterableDataset

BUILDERS = {".parquet": "parquet", ".tar": "webdataset"}
"""Files that `datasets` reads, and by which of its builders."""
SUFFIXES = (*READERS, *BUILDERS)


def read_rows(source: str, config: str | None = None, split: str | None = None) -> Iterator[Row]:
    """Read every row with its place for messages, such as `rows.jsonl, line 3`.

    Args:
        source: a file with one of `SUFFIXES`, or a pattern such as `shards/*.tar`; otherwise a
            folder or hub id for `datasets.load_dataset`.
        config: configuration of a hub data set.
        split: of a hub data set, with slices as in `train[:-500]`; None is `train`.

    Raises:
        NotHereError: a data set of the hub that does not exist or cannot be downloaded.
        ConfigError: no such file, one that cannot be read, one of another type, an unknown
            configuration or split, or a configuration or split for a file.
    """
    files = _find_files(source, config, split)
    if files and Path(files[0]).suffix in READERS:
        rows: Iterator[Row] = (row for file in files for row in read_file(Path(file)))
    else:
        found = stored_rows(_load(source, files, config, split))
        rows = ((f"{source}, row {n}", row) for n, row in enumerate(found))
    return ((place, _without_nulls(row)) for place, row in rows)


def open_rows(source: str, config: str | None = None, split: str | None = None) -> IterableDataset:
    """Open rows to be read one after the other, each by `read_row`; see `read_rows`.

    Raises:
        NotHereError, ConfigError: see `read_rows`.
    """
    from datasets import IterableDataset

    files = _find_files(source, config, split)
    if files and Path(files[0]).suffix in READERS:
        return IterableDataset.from_generator(_stream, gen_kwargs={"files": files})  # type: ignore[return-value]
    return _load(source, files, config, split, streaming=True).with_format("arrow")


def read_row(row: Any, place: str) -> Row:
    """An item of `open_rows` with its place as `read_rows` gives them.

    Args:
        row: the item.
        place: of one that does not know its file and line.
    """
    if isinstance(row, dict):
        place, row = row["place"], row["row"]
    else:
        [row] = table_rows(row)
    return place, _without_nulls(row)


def _find_files(source: str, config: str | None, split: str | None) -> list[str]:
    """The files of a source in the order of their names; none for a folder or a hub id.

    Raises:
        ConfigError: see `read_rows`.
    """
    path, files = Path(source), [source]
    if has_magic(source) and not path.exists():
        files = sorted(name for name in glob(source, recursive=True) if Path(name).is_file())
        if not files:
            raise ConfigError(f"no file matches the pattern '{source}'; give another or a hub id.")
    elif path.is_dir() or not (path.is_file() or path.suffix in SUFFIXES):
        return []
    elif not path.is_file():
        raise ConfigError(f"'{source}' is not a file; give a prompt file or a hub id.")
    for key, value in (("data.config", config), ("data.split", split)):
        check(value is None, key, value, "null for a file", f"'{source}' holds one set of rows.")
    kinds = {Path(file).suffix for file in files}
    if unknown := kinds - set(SUFFIXES):
        kind = next(iter(unknown)) or "without an ending"
        raise ConfigError(f"'{source}' is a file {kind}; what is read is {', '.join(SUFFIXES)}.")
    if len(kinds) > 1 and not kinds <= set(READERS):
        raise ConfigError(f"'{source}' matches files {', '.join(sorted(kinds))}; name one kind.")
    return files


def _stream(files: Sequence[str]) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from ({"place": place, "row": row} for place, row in read_file(Path(file)))


def _load(
    source: str, files: list[str], config: str | None, split: str | None, streaming: bool = False
) -> Any:
    import pyarrow
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    asked = f"'{source}' (data.config {config or 'null'}, data.split {split or 'train'})"
    advice = ""
    if Path(source).is_dir():
        advice = f" To read some of its files, give a pattern such as '{source}/*.jsonl'."
    elif not files and (not is_hub_id(source) or (source[0].isdigit() and "/" not in source)):
        raise ConfigError(f"'{source}' is neither a {', '.join(SUFFIXES)} file nor a hub id.")
    name = BUILDERS[Path(files[0]).suffix] if files else source
    options: dict[str, Any] = {"data_files": files or None, "streaming": streaming}
    try:
        return load_dataset(name, config, split=split or "train", **options)
    except OSError as error:
        kind = NotHereError if not files and is_hub_id(source) else ConfigError
        raise kind(
            f"{asked} is neither a {', '.join(SUFFIXES)} file nor a data set that the hub"
            f" returned ({_reason(error)}).{advice}"
        ) from error
    except (ValueError, TypeError, DatasetsError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{asked} cannot be loaded: {_reason(error)}.{advice}") from error


def _reason(error: BaseException) -> str:
    error = error.__cause__ or error
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
