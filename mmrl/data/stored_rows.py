"""Rows of Arrow tables as Hugging Face `datasets` keeps them.

Images are not decoded, and their bytes stay in the data set until they are read, so a set may be
larger than the memory. A column whose values have several types is kept as JSON; such are restored.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyarrow import types

Key = str | int
Refer = Callable[[int, tuple[Key, ...]], Any]
"""Makes the value that is taken for the bytes at keys of a row."""
BATCH = 100
"""Rows that are in memory together while a data set is read."""


@dataclass(frozen=True)
class StoredBytes:
    """Bytes in a row of a data set.

    Attributes:
        table: the data set, in the format `arrow`.
        row: number of the row.
        keys: the column, and where they are in its value.
    """

    table: Any
    row: int
    keys: tuple[Key, ...]

    def read(self) -> bytes:
        """Read them from the files of the data set."""
        [value] = self.table[self.row].to_pylist()
        for key in self.keys:
            value = value[key]
        return value


def stored_rows(dataset: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `datasets.Dataset`, with `StoredBytes` instead of bytes."""
    table = dataset.with_format("arrow")
    for first in range(0, len(table), BATCH):

        def refer(row: int, keys: tuple[Key, ...], first: int = first) -> StoredBytes:
            return StoredBytes(table, first + row, keys)

        yield from table_rows(table[first : first + BATCH], refer)


def table_rows(table: Any, refer: Refer | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow table; bytes as they are, or what `refer` makes of their place."""
    kinds = {column.name: column.type for column in table.schema}
    plain = not any(word in str(table.schema.types) for word in ("binary", "json"))
    for n, row in enumerate(table.to_pylist()):
        yield (
            row
            if plain
            else {
                name: _restore(value, kinds[name], n, (name,), refer) for name, value in row.items()
            }
        )


def _restore(value: Any, kind: Any, row: int, keys: tuple[Key, ...], refer: Refer | None) -> Any:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value if refer is None else refer(row, keys)
    if getattr(kind, "extension_name", "") == "arrow.json":
        return _restore_json(value)
    if types.is_struct(kind):
        parts = ((part.name, part.type) for part in kind)
        return {name: _restore(value[name], k, row, (*keys, name), refer) for name, k in parts}
    if types.is_list(kind) or types.is_large_list(kind):
        items = enumerate(value)
        return [_restore(each, kind.value_type, row, (*keys, n), refer) for n, each in items]
    return value


def _restore_json(text: str) -> Any:
    """The value of JSON. A bare number or word is left a text: `datasets` writes the texts `5`,
    `007` and `null` as they are, without quotes."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | list | dict) else text
