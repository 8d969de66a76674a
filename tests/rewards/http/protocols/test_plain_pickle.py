"""The restricted reader: plain values come through, everything else is refused and nothing runs."""

import collections
import os
import pickle
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from mmrl.rewards.http.protocols.plain_pickle import (
    KINDS,
    MAX_BYTES,
    MAX_DEPTH,
    PickleRefused,
    read_pickle,
)

PROTOCOLS = (3, 4, 5)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=300)
    | st.binary(max_size=300)
)
KEYS = st.text() | st.integers(-(2**40), 2**40)
NUMBERS = st.sampled_from([np.dtype(order + kind) for kind in KINDS for order in "<>"])


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=5)
    return lists | lists.map(tuple) | st.dictionaries(KEYS, inner, max_size=5)


@settings(deadline=None, max_examples=150)
@given(st.recursive(LEAVES, containers, max_leaves=20), st.sampled_from(PROTOCOLS))
def test_any_plain_value_comes_through(value: Any, protocol: int) -> None:
    found = read_pickle(pickle.dumps(value, protocol))
    assert found == value and repr(found) == repr(pickle.loads(pickle.dumps(value, protocol)))


@settings(deadline=None, max_examples=150)
@given(
    NUMBERS.flatmap(lambda d: st_numpy.arrays(d, st_numpy.array_shapes(min_dims=0, min_side=0))),
    st.sampled_from(PROTOCOLS),
    st.sampled_from("CF"),
)
def test_any_array_of_numbers_comes_through(array: np.ndarray, protocol: int, order: Any) -> None:
    array = np.asarray(array, order=order)
    found, scalar = read_pickle(pickle.dumps((array, array.reshape(-1)[:1]), protocol))
    assert found.dtype == array.dtype and found.shape == array.shape
    assert found.tobytes() == array.tobytes() and len(scalar) == min(1, array.size)
    for number in array.reshape(-1)[:2]:
        again = read_pickle(pickle.dumps(number, protocol))
        assert type(again) is type(number) and again.tobytes() == number.tobytes()


def test_numbers_come_through_under_the_names_of_numpy_1() -> None:
    value = {"scores": np.arange(3.0), "one": np.float32(0.5)}
    found = read_pickle(pickle.dumps(value, 3).replace(b"numpy._core", b"numpy.core"))
    assert found["scores"].tolist() == [0.0, 1.0, 2.0] and found["one"] == 0.5


class Calls:
    """Pickles as a call of anything."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        function, *arguments = self.call
        return function, tuple(arguments)


def hostile(canary: Path) -> dict[str, Any]:
    command = f"touch {canary}"
    return {
        "os.system": Calls(os.system, command),
        "eval": Calls(eval, f"open({str(canary)!r}, 'w')"),
        "open": Calls(open, str(canary), "w"),
        "nested deep": [{"scores": [1.0, (2.0, {"x": Calls(os.system, command)})]}],
        "a key": Calls(dict, [(Calls(os.system, command), 1)]),
        "pickle.loads": Calls(pickle.loads, pickle.dumps(Calls(os.system, command))),
        "a class": Path,
        "a default dict": collections.defaultdict(list, {"a": [1]}),
        "memmap": Calls(np.memmap, str(canary), "u1", "w+", 0, (8,)),
        "array of objects": np.array([Calls(os.system, command)], dtype=object),
        "record": np.zeros(2, dtype=[("a", "f4")]),
        "structured type": np.dtype([("a", "O")]),
        "ndarray called": Calls(np.ndarray, (2**40,)),
        "long double": np.longdouble(1),
    }


@pytest.mark.parametrize("protocol", (2, 4))
@pytest.mark.parametrize("name", hostile(Path("x")))
def test_whatever_is_not_plain_is_refused_and_nothing_of_it_runs(
    name: str, protocol: int, tmp_path: Path
) -> None:
    data = pickle.dumps({"scores": [1.0], "more": hostile(tmp_path / "canary")[name]}, protocol)
    loaded = set(sys.modules)
    with pytest.raises(PickleRefused, match="was refused, and nothing in it was run"):
        read_pickle(data)
    assert not (tmp_path / "canary").exists() and set(sys.modules) == loaded


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def whole(value: int) -> bytes:
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def array(shape: bytes, data: bytes) -> bytes:
    """An array of doubles as NumPy writes it, with a shape of one's choice."""
    held = b"B" + struct.pack("<I", len(data)) + data
    return EMPTY + b"(K\x01" + shape + TYPE + b"\x89" + held + b"tb."


def doubled(times: int) -> bytes:
    """A tuple that holds another twice, that holds another twice …; the last is two to the power
    of so many values."""
    steps = (b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(times))
    return b"()q\x00" + b"".join(steps) + b"t."


SCALAR = b"cnumpy._core.multiarray\nscalar\n"
FRESH = b"cnumpy._core.multiarray\n_reconstruct\n"
DTYPE = b"cnumpy\ndtype\n"
STATE = b"(K\x03" + text("<") + b"NNN" + whole(-1) * 2 + b"K\x00tb"
TYPE = DTYPE + text("f8") + b"\x89\x88\x87R" + STATE
EMPTY = FRESH + b"cnumpy\nndarray\nK\x00\x85C\x01b\x87R"
FIELDS = b"(K\x03" + text("|") + b"N)}K\x01K\x01K\x00tb."
LAUGHS = b"".join(b"](" + b"h%c" % n * 9 + b"eq%c" % (n + 1) for n in range(40))
MODULUS = 2**61 - 1
COLLIDING = b"".join(whole(MODULUS * n) + b"N" for n in range(1, 999))
CRAFTED = {
    "nothing": (b"", "damaged"),
    "protocol 0": (pickle.dumps([1.5], 0), "instruction"),
    "a value below the mark": (b"](Na.", "damaged"),
    "a list that is none": (b"}Na.", "damaged"),
    "a key without a value": (b"}(Nu.", "a key other|damaged"),
    "a list as a key": (b"}]Ns.", "a key other"),
    "a tuple as a key": (b"}K\x01\x85Ns.", "a key other"),
    "a key that may collide": (b"}(" + COLLIDING + b"u.", "a key other"),
    "deep lists": (b"]" * 100_000 + b"a" * 99_999 + b".", "levels"),
    "deep tuples": (b")" + b"\x85" * 200_000 + b".", "levels"),
    "a billion laughs": (b"(]q\x00" + LAUGHS + b"t.", "values"),
    "doubled tuples": (doubled(60), "values"),
    "a number that claims more": (b"\x8a\xff\x01.", "damaged"),
    "a million digits": (b"\x8b" + struct.pack("<i", 415_000) + b"\x7f" * 415_000 + b".", "LONG4"),
    "a million digits in text": (b"L" + b"9" * 1_000_000 + b"L\n.", "damaged"),
    "bytes that claim all": (b"\x8e" + struct.pack("<Q", 2**60) + b"abc.", "remain"),
    "a bytearray that claims all": (b"\x96" + struct.pack("<Q", 2**40) + b"abc.", "remain"),
    "a new object": (b"c_codecs\nencode\n)\x81.", "NEWOBJ"),
    "a buffer from elsewhere": (b"\x97.", "NEXT_BUFFER"),
    "a call of a text": (text("os") + b")R.", "damaged"),
    "a call with a list": (DTYPE + b"]R.", "a call of"),
    "a state for a list": (b"]}K\x01K\x01sb.", "damaged"),
    "a class as a value": (b"]cnumpy\nndarray\na.", "unfinished"),
    "a type as a value": (TYPE + b".", "unfinished"),
    "a type of objects": (DTYPE + text("O8") + b"\x89\x88\x87R.", "'O8'"),
    "a state for a name": (DTYPE + b"K\x01b.", "a state for"),
    "a type with fields": (DTYPE + text("f8") + b"\x89\x88\x87R" + FIELDS, "state"),
    "an array without content": (EMPTY + b".", "unfinished"),
    "an array made large at once": (
        FRESH + b"cnumpy\nndarray\n" + whole(10**12) + b"\x85C\x01b\x87R.",
        "a call of",
    ),
    "an array of 10^18 of 10^18": (array(whole(10**18) * 2 + b"\x86", b"\0" * 8), "shape"),
    "an array of -1 by -1": (array(whole(-1) * 2 + b"\x86", b"\0" * 8), "shape"),
    "an array with too few bytes": (array(b"K\x02\x85", b"\0" * 8), "shape"),
    "a number with too few bytes": (SCALAR + TYPE + b"C\x01a\x86R.", "shape"),
    "too many instructions": (b"]" + b"Na" * 2**18 + b".", "instructions"),
    "too many bytes": (b"B" + struct.pack("<I", MAX_BYTES) + b"\0" * MAX_BYTES + b".", "bytes"),
}
"""Pickles written by hand, and a word of why each is refused."""


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_pickle_is_refused_at_once(name: str) -> None:
    (data, why), started = CRAFTED[name], time.process_time()
    with pytest.raises(PickleRefused, match=why):
        read_pickle(data)
    assert time.process_time() - started < 3


def test_a_value_never_contains_itself_and_parts_are_not_shared() -> None:
    with pytest.raises(PickleRefused, match="levels"):
        read_pickle(b"]q\x00h\x00a.")
    one, two = read_pickle(pickle.dumps([inner := [1.0], inner]))
    assert one == two == inner and one is not two


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 3))
def test_no_bytes_do_anything_but_give_a_plain_value_or_be_refused(
    junk: bytes, at: int, drop: int
) -> None:
    right = pickle.dumps({"scores": [np.float32(1), 2.0], "group": {"a": np.arange(3)}}, 4)
    for data in (junk, right[:at] + junk + right[at + drop :]):
        try:
            repr(read_pickle(data))
        except PickleRefused:
            continue


def test_as_deep_as_allowed_and_no_deeper() -> None:
    value: Any = 1.0
    for _ in range(MAX_DEPTH):
        value = [value]
    assert read_pickle(pickle.dumps(value)) == value
    with pytest.raises(PickleRefused, match="levels"):
        read_pickle(pickle.dumps([value]))
