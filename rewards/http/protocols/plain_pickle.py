"""Pickles of plain values from servers that are not trusted.

A pickle is a program, and `pickle.Unpickler` runs what it names. This one, Python's own without its
C part, looks no name up: NumPy's numbers and arrays are made by `np.frombuffer`. What a pickle
claims is checked before it is read, and what it made is copied and counted.
"""

import io
import math
import pickle
import pickletools
import reprlib
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

MAX_BYTES, MAX_VALUES, MAX_DEPTH = 2**24, 2**18, 64
"""Of a pickle; instructions, and copied values; levels of these."""
MAX_KEY = 2**60
"""Larger integers can be chosen to share a hash."""
KINDS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
INSTRUCTIONS = (
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT"
    " SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8"
    " EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS"
    " MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_UNPICKLER: Any = pickle._Unpickler


class PickleRefused(ValueError):
    """A pickle with something that is not admitted."""


def read_pickle(data: bytes, max_bytes: int = MAX_BYTES) -> Any:
    """The plain value in a pickle of protocol 3, 4 or 5 and of at most `max_bytes`. Raises
    PickleRefused: it holds anything else, or too much of it."""
    try:
        if len(data) > max_bytes:
            _refuse("too many bytes,", len(data))
        admitted = set(INSTRUCTIONS.split())
        for n, (instruction, _, _) in enumerate(pickletools.genops(data)):  # type: ignore[misc]
            if instruction.name not in admitted:
                _refuse("the instruction", instruction.name)
            if n == MAX_VALUES:
                _refuse("too many instructions, more than", MAX_VALUES)
        reader = _Reader(io.BytesIO(data))
        return reader.copy(reader.load())
    except PickleRefused:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, pickle.PickleError) as e:
        raise PickleRefused(f"the pickle was refused, it is damaged or truncated: {e!r}") from e


def _refuse(what: str, value: Any) -> NoReturn:
    raise PickleRefused(
        f"the pickle was refused, and nothing in it was run: {what} {reprlib.repr(value)[:80]};"
        " plain containers, numbers, texts and NumPy numbers and arrays are admitted"
    )


@dataclass(frozen=True)
class _Name:
    """A name in a pickle, which is never looked up; a call makes what NumPy's constructor would."""

    name: str

    def __call__(self, *arguments: Any) -> "_Made":
        match self.name, arguments:
            case "numpy.dtype", (kind, _, _) if kind in KINDS:
                return _Made(np.dtype(kind))
            case "numpy._core.multiarray._reconstruct", (_Name("numpy.ndarray"), (0,), b"b"):
                return _Made()
            case "numpy._core.multiarray.scalar", (_Made(np.dtype() as kind), data):
                return _Made(_array(data, kind, (), "C")[()])
            case "numpy._core.numeric._frombuffer", (data, _Made(np.dtype() as kind), shape, order):
                return _Made(_array(data, kind, shape, order))
        _refuse("a call of", (self.name, arguments))

    def __setstate__(self, state: Any) -> None:
        _refuse("a state for", self.name)


@dataclass
class _Made:
    """What a call made: a NumPy type, number or array, which a state may complete."""

    value: Any = None

    def __setstate__(self, state: Any) -> None:
        match self.value, state:
            case np.dtype() as kind, (3, "<" | ">" | "|" as order, None, None, None, -1, -1, 0):
                self.value = kind.newbyteorder(order)
            case None, (1, shape, _Made(np.dtype() as kind), is_fortran, data):
                self.value = _array(data, kind, shape, "F" if is_fortran is True else "C")
            case _:
                _refuse("the state", state)


class _Reader(_UNPICKLER):
    dispatch = dict(_UNPICKLER.dispatch)
    left = MAX_VALUES

    def find_class(self, module: str, name: str) -> Any:
        return _Name(f"{module.replace('numpy.core', 'numpy._core')}.{name}")

    def load_setitem(self) -> None:
        _check_key(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:
            _check_key(key)
        super().load_setitems()

    dispatch[pickle.SETITEM[0]], dispatch[pickle.SETITEMS[0]] = load_setitem, load_setitems

    def copy(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """A copy of a value in which nothing is shared, unfinished or contains itself."""
        self.left -= 1
        if self.left < 0 or depth < 0:
            _refuse("too many values or levels, more than", (MAX_VALUES, MAX_DEPTH))
        if type(value) is dict:
            return {key: self.copy(each, depth - 1) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.copy(each, depth - 1) for each in value)
        if not isinstance(value, _Name | _Made):
            return value
        if isinstance(value, _Made) and isinstance(value.value, np.ndarray | np.generic):
            return value.value
        return _refuse("an unfinished value,", value)


def _check_key(key: Any) -> None:
    """Hashing others may take forever."""
    if type(key) is not str and (type(key) is not int or abs(key) > MAX_KEY):
        _refuse("a key other than texts and small integers,", key)


def _array(data: Any, kind: np.dtype, shape: Any, order: Any) -> np.ndarray:
    """An array over bytes, if type and shape need exactly as many."""
    sides = [side for side in shape if type(side) is int and 0 <= side < 2**31]
    is_right = len(sides) == len(shape) <= 8 and isinstance(data, bytes | bytearray)
    if not is_right or math.prod(sides) * kind.itemsize != len(data):
        _refuse("an array whose bytes do not fit its shape", shape)
    return np.frombuffer(data, kind).reshape(shape, order="F" if order == "F" else "C")
