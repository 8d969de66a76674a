"""Arrow columns as Python values without copies of their bytes, in memory or in a mapped file.

A scalar of Arrow copies its bytes when it is taken out of an array, so buffers are sliced here.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow
from pyarrow import types


def holds_bytes(kind: pyarrow.DataType) -> bool:
    """Whether values of a type hold bytes, in structs and lists of any depth."""
    if types.is_struct(kind):
        return any(holds_bytes(column.type) for column in kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return holds_bytes(kind.value_type)
    return types.is_binary(kind) or types.is_large_binary(kind)


def buffer_values(array: Any) -> list[Any]:
    """Read the values of an array, with `pyarrow.Buffer` slices of its memory instead of bytes."""
    if not holds_bytes(array.type):
        return array.to_pylist()
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
