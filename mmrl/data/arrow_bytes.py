"""Arrow columns as Python values without copies of their bytes, in memory or in a mapped file.

A scalar of Arrow copies its bytes when it is taken out of an array, so buffers are sliced here.
Hugging Face `datasets` keeps a column whose values have several types as JSON; such are restored.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow
from pyarrow import types


def holds_bytes(kind: pyarrow.DataType) -> bool:
    """Whether values of a type hold bytes, in structs and lists of any depth."""
    return _holds(kind, _is_bytes)


def batch_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table or record batch, see `buffer_values`."""
    chunks = [getattr(column, "chunks", [column]) for column in batch.columns]
    columns = [[item for part in parts for item in buffer_values(part)] for parts in chunks]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def buffer_values(array: Any) -> list[Any]:
    """Read the values of an array: `pyarrow.Buffer` slices of its memory instead of bytes, and what
    JSON says instead of its text."""
    if not _holds(array.type, lambda kind: _is_bytes(kind) or _is_json(kind)):
        return array.to_pylist()
    if _is_json(array.type):
        return [text if text is None else _restore(text) for text in array.storage.to_pylist()]
    if types.is_struct(array.type):
        names = [column.name for column in array.type]
        columns = [buffer_values(array.field(n)) for n in range(len(names))]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        return _where_valid(array, rows)
    if types.is_list(array.type) or types.is_large_list(array.type):
        ends = array.offsets.to_pylist()
        items = buffer_values(array.values.slice(ends[0], ends[-1] - ends[0]))
        first = ends[0]
        rows = (items[a - first : b - first] for a, b in zip(ends, ends[1:], strict=False))
        return _where_valid(array, rows)
    width = np.int64 if types.is_large_binary(array.type) else np.int32
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].tolist()
    data = data or pyarrow.py_buffer(b"")  # None where all values are null
    pieces = (data.slice(a, b - a) for a, b in zip(ends, ends[1:], strict=False))
    return _where_valid(array, pieces)


def _where_valid(array: Any, values: Iterable[Any]) -> list[Any]:
    valid = array.is_valid().to_pylist()
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def _holds(kind: pyarrow.DataType, wanted: Callable[[pyarrow.DataType], bool]) -> bool:
    if types.is_struct(kind):
        return any(_holds(column.type, wanted) for column in kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _holds(kind.value_type, wanted)
    return wanted(kind)


def _is_bytes(kind: pyarrow.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind)


def _is_json(kind: pyarrow.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.json"


def _restore(text: str) -> Any:
    """The value of JSON. A bare number or word is left a text: `datasets` writes the texts `5`,
    `007` and `null` as they are, without quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | list | dict) else text
