"""Bytes of data sets are found without being read."""

import pyarrow as pa
import pytest

from mmrl.data.arrow_bytes import buffer_values, holds_bytes

PICTURE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
PART = pa.struct({"type": pa.string(), "image": PICTURE})
ROWS = [
    [{"type": "image", "image": {"bytes": b"one", "path": None}}, {"type": "text", "image": None}],
    None,
    [],
    [{"type": "image", "image": {"bytes": None, "path": "x.png"}}],
    [{"type": "image", "image": {"bytes": b"", "path": "y.png"}}, None],
]


def plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.to_pybytes() if isinstance(value, pa.Buffer) else value


@pytest.mark.parametrize("listed", [pa.list_, pa.large_list])
def test_values_are_those_of_arrow_in_every_slice(listed: object) -> None:
    array = pa.array(ROWS, listed(PART))  # type: ignore[operator]
    for first in range(len(ROWS)):
        for count in range(len(ROWS) - first + 1):
            part = array.slice(first, count)
            assert plain(buffer_values(part)) == part.to_pylist()


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_no_byte_is_copied(kind: pa.DataType) -> None:
    array = pa.array([b"a", None, b"bcd", b""], kind).slice(1)
    data = array.buffers()[2]
    none, found, empty = buffer_values(array)
    assert none is None and len(empty) == 0
    assert buffer_values(pa.array([None, None], kind)) == [None, None]
    assert found.address == data.address + 1 and found.to_pybytes() == b"bcd"


def test_what_holds_bytes_is_known_at_any_depth() -> None:
    assert holds_bytes(pa.list_(PART)) and holds_bytes(PICTURE)
    assert not holds_bytes(pa.struct({"a": pa.list_(pa.string())}))
