"""NumPy numbers and arrays as pickles describe them, made from their bytes by hand.

Only plain types of numbers are made (bool, whole, floating point and complex ones of fixed size),
and only where as many bytes are there as type and shape say. NumPy's own functions for reading
pickles are never called, by none of the names it has given them (NumPy 1: `numpy.core`, NumPy 2:
`numpy._core`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rewards.http.protocols.plain_values import PickleRefused, keys, shown

T = TypeVar("T")

TYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
MAX_DIMENSIONS = 8


@dataclass(frozen=True)
class Name:
    """A name in a pickle that stands for one of the constructors here."""

    kind: str

    def __str__(self) -> str:
        return f"the constructor of {self.kind}"


NAMES = {
    ("numpy", "dtype"): Name("type"),
    ("numpy", "ndarray"): Name("array class"),
    ("_codecs", "encode"): Name("bytes of text"),
    **{(f"numpy.{core}.multiarray", "scalar"): Name("number") for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Name("array") for core in ("core", "_core")},
    **{
        (f"numpy.{core}.numeric", "_frombuffer"): Name("filled array") for core in ("core", "_core")
    },
    **{
        (module, name): Name(name)
        for module in ("builtins", "__builtin__")
        for name in ("bytes", "bytearray", "set", "frozenset", "complex")
    },
}
"""Every name that is admitted. The plain classes are how protocols 2 and 3 write bytes and sets."""


class Shell:
    """What a pickle makes in two steps: a type or an array."""

    def set_state(self, state: Any) -> None:
        """Take the second step."""
        raise NotImplementedError

    def value(self) -> Any:
        """What it is when all is read."""
        raise NotImplementedError


class PlainType(Shell):
    """A type of numbers."""

    def __init__(self, text: str) -> None:
        self.text, self.order = text, "="

    def set_state(self, state: Any) -> None:
        """(version, order of bytes, no parts, no names, no fields, …)."""
        if (
            type(state) is not tuple
            or state[:1] != (3,)
            or state[1:2] not in (("<",), (">",), ("|",), ("=",))
            or state[2:] != (None, None, None, -1, -1, 0)
        ):
            raise PickleRefused(f"the state {shown(state)} of a NumPy type")
        self.order = state[1]

    @property
    def dtype(self) -> np.dtype:
        """The type of NumPy."""
        return np.dtype(self.order + self.text)

    def value(self) -> Any:
        """Refused: a type is no value."""
        raise PickleRefused("a NumPy type as a value")


class Array(Shell):
    """An array, empty until its state is known."""

    found: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        """(version, shape, type, whether the first index runs fastest, bytes)."""
        if type(state) is not tuple or len(state) != 5 or state[0] != 1:
            raise PickleRefused(f"the state {shown(state)} of an array")
        self.found = filled(state[4], state[2], state[1], "F" if state[3] is True else "C")

    def value(self) -> Any:
        """The array."""
        if self.found is None:
            raise PickleRefused("an array without content")
        return self.found


def built(name: Name, arguments: tuple[Any, ...], left: int) -> tuple[Any, int]:
    """What a constructor makes of its arguments, and the bytes that this takes.

    Raises:
        PickleRefused: they are not those it is used with, or it needs more bytes than are left.
    """
    match name.kind, arguments:
        case "type", (str(text), False | 0, bool() | int()) if text in TYPES:
            return PlainType(text), 0
        case "array", (Name(kind="array class"), (0,), b"b"):
            return Array(), 0
        case "filled array", (data, kind, shape, ("C" | "F") as order):
            array = Array()
            array.found = filled(data, kind, shape, order)
            return array, 0
        case "number", (PlainType() as kind, bytes(data)) if len(data) == kind.dtype.itemsize:
            return np.frombuffer(data, kind.dtype)[0], 0
        case "bytes of text", (str(text), "latin1"):
            return _spent(text, 1, left, lambda: text.encode("latin-1"))
        case "bytes", ():
            return b"", 0
        case "bytearray", (() | (bytes(),)):
            data = arguments[0] if arguments else b""
            return _spent(data, 1, left, lambda: bytearray(data))
        case "complex", (float(real), float(imaginary)):
            return complex(real, imaginary), 0
        case "set", (list(members),):
            return _spent(members, 64, left, lambda: set(keys(members)))
        case "frozenset", (list(members),):
            return _spent(members, 64, left, lambda: frozenset(keys(members)))
    raise PickleRefused(f"{name} of {shown(arguments)}")


def filled(data: Any, kind: Any, shape: Any, order: str) -> np.ndarray:
    """An array of bytes that are there.

    Args:
        data: the bytes.
        kind: the type of its numbers.
        shape: its shape, at most `MAX_DIMENSIONS`.
        order: "C" or "F".

    Raises:
        PickleRefused: shape and type claim another number of bytes.
    """
    plain = (
        isinstance(data, bytes | bytearray)
        and isinstance(kind, PlainType)
        and type(shape) is tuple
        and len(shape) <= MAX_DIMENSIONS
        and all(type(side) is int and 0 <= side < 2**31 for side in shape)
    )
    if not plain:
        raise PickleRefused(f"an array of shape {shown(shape)} and type {shown(kind)}")
    claimed = math.prod(shape) * kind.dtype.itemsize
    if claimed != len(data):
        raise PickleRefused(f"an array that claims {claimed:,} bytes and has {len(data):,}")
    return np.frombuffer(data, kind.dtype).reshape(shape, order=order)  # type: ignore[arg-type]


def _spent(source: Sized, each: int, left: int, make: Callable[[], T]) -> tuple[T, int]:
    """What `make` makes of a source, if so many bytes for each of its parts are left."""
    size = each * len(source)
    if size > left:
        raise PickleRefused("values that are copied again and again")
    return make(), size
