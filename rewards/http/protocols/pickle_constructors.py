"""All that a pickle from a server may call: constructors of sets, bytes and NumPy numbers.

NumPy's own functions for reading pickles are never called, under none of the names that it has
given them (NumPy 1: `numpy.core`, NumPy 2: `numpy._core`). Arrays have types of numbers of fixed
size (bool, integer, floating point, complex), and exactly the bytes that type and shape need.
"""

import math
import reprlib
from typing import Any

import numpy as np

TYPES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
MAX_DIMENSIONS = 8
MAX_KEY = 2**61 - 2
"""Largest integer as a key: larger ones can be chosen to share a hash."""
_KEYS = (str, bytes, int, float, bool, type(None))

NAMES = {
    ("numpy", "dtype"): "type",
    ("numpy", "ndarray"): "array class",
    ("_codecs", "encode"): "bytes of text",
    **{(f"numpy.{core}.multiarray", "scalar"): "number" for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "array" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "filled array" for core in ("core", "_core")},
    **{
        (module, name): name
        for module in ("builtins", "__builtin__")
        for name in ("bytes", "bytearray", "set", "frozenset", "complex")
    },
}
"""Every name that is admitted. The plain classes are how protocols 2 and 3 write bytes and sets."""


class PickleRefused(ValueError):
    """A pickle with something that is not admitted."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the pickle was refused, and nothing in it was run: {what}. Plain containers,"
            " numbers, texts and NumPy numbers and arrays are admitted."
        )


class Allowance:
    """The bytes that constructors may still allocate."""

    def __init__(self, size: int) -> None:
        self.left = size

    def spend(self, size: int) -> None:
        """Raise a `PickleRefused` if fewer bytes are left."""
        self.left -= size
        if self.left < 0:
            raise PickleRefused("values that are copied again and again")


class Unfinished:
    """What a pickle makes in two steps: a type or an array. The second is `__setstate__`."""

    def value(self) -> Any:
        """The finished value."""
        raise NotImplementedError


class PlainType(Unfinished):
    """A type of numbers."""

    def __init__(self, text: str) -> None:
        self.text, self.order = text, "="

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, no parts, no names, no fields, …)
        if (
            type(state) is not tuple
            or state[:1] != (3,)
            or state[1:2] not in (("<",), (">",), ("|",), ("=",))
            or state[2:] != (None, None, None, -1, -1, 0)
        ):
            raise PickleRefused(f"the state {_shorten(state)} of a NumPy type")
        self.order = state[1]

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type."""
        return np.dtype(self.order + self.text)

    def value(self) -> Any:
        raise PickleRefused("a NumPy type as a value")


class Array(Unfinished):
    """An array, empty until its state is set."""

    def __init__(self, found: np.ndarray | None = None) -> None:
        self.found = found

    def __setstate__(self, state: Any) -> None:
        # (version, shape, type, whether the first index runs fastest, bytes)
        if type(state) is not tuple or len(state) != 5 or state[0] != 1:
            raise PickleRefused(f"the state {_shorten(state)} of an array")
        self.found = _array(state[4], state[2], state[1], "F" if state[3] is True else "C")

    def value(self) -> Any:
        if self.found is None:
            raise PickleRefused("an array without content")
        return self.found


class Constructor:
    """A name in a pickle, as what it calls."""

    __slots__ = ("allowance", "kind")

    def __init__(self, kind: str, allowance: Allowance) -> None:
        self.kind, self.allowance = kind, allowance

    def __str__(self) -> str:
        return f"the constructor of {self.kind}"

    def __call__(self, *arguments: Any) -> Any:
        match self.kind, arguments:
            case "type", (str(text), False | 0, bool() | int()) if text in TYPES:
                return PlainType(text)
            case "array", (Constructor(kind="array class"), (0,), b"b"):
                return Array()
            case "filled array", (data, kind, shape, ("C" | "F") as order):
                return Array(_array(data, kind, shape, order))
            case "number", (PlainType() as kind, bytes(data)) if len(data) == kind.dtype.itemsize:
                return np.frombuffer(data, kind.dtype)[0]
            case "bytes of text", (str(text), "latin1"):
                self.allowance.spend(len(text))
                return text.encode("latin-1")
            case "bytes", ():
                return b""
            case "bytearray", (() | (bytes(),)):
                self.allowance.spend(sum(map(len, arguments)))
                return bytearray(*arguments)
            case "complex", (float(real), float(imaginary)):
                return complex(real, imaginary)
            case (("set" | "frozenset"), (list(members),)):
                self.allowance.spend(64 * len(members))
                _check_members(members)
                return set(members) if self.kind == "set" else frozenset(members)
        raise PickleRefused(f"{self} of {_shorten(arguments)}")


def _check_members(values: list[Any]) -> None:
    for value in values:
        if type(value) not in _KEYS or (type(value) is int and abs(value) > MAX_KEY):
            raise PickleRefused(f"{_shorten(value)} as a key or member")


def _array(data: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over bytes, if type and shape need exactly as many."""
    plain = (
        isinstance(data, bytes | bytearray)
        and isinstance(kind, PlainType)
        and type(shape) is tuple
        and len(shape) <= MAX_DIMENSIONS
        and all(type(side) is int and 0 <= side < 2**31 for side in shape)
    )
    if not plain:
        raise PickleRefused(f"an array of shape {_shorten(shape)} and type {_shorten(kind)}")
    claimed = math.prod(shape) * kind.dtype.itemsize
    if claimed != len(data):
        raise PickleRefused(f"an array that claims {claimed:,} bytes and has {len(data):,}")
    return np.frombuffer(data, kind.dtype).reshape(shape, order=order)


def _shorten(value: Any) -> str:
    return reprlib.repr(value)[:80]
