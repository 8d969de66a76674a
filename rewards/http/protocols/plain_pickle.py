"""Pickles of plain values from servers that are not trusted.

    read_pickle(pickle.dumps({"scores": [0.5, np.float32(0.25)]}))

A pickle is a program, and `pickle.Unpickler` runs what it names. Here only the instructions that
plain values need are carried out: no name is looked up, and NumPy's numbers and arrays are made by
`np.frombuffer`. Keys are texts and small integers, because hashing others may take forever. Parts
that occur twice are copied and counted, so that no value grows or contains itself.
"""

import math
import pickletools
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_BYTES, MAX_DEPTH = 2**24, 64
MAX_VALUES = 2**18
"""Instructions and copied values."""
MAX_KEY = 2**60
"""Larger integers can be chosen to share a hash."""
KINDS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")

_SCALARS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BYTEARRAY8", "SHORT_BINUNICODE")
_SCALARS += ("BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8")
_TAKES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2, "BUILD": 1, "REDUCE": 2}
_TAKES |= {"STACK_GLOBAL": 2, "TUPLE": -1, "APPENDS": -1, "SETITEMS": -1}
"""How many values an instruction takes; -1 are all above the last mark."""
_MAKES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), lambda *taken: taken),
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_LIST": list, "EMPTY_DICT": dict, "REDUCE": lambda *taken: _call(*taken)},
    "STACK_GLOBAL": lambda *taken: _Name(taken),
}


class PickleRefused(ValueError):
    """A pickle with something that is not admitted."""

    def __init__(self, what: str, value: Any) -> None:
        super().__init__(
            f"the pickle was refused, and nothing in it was run: {what} {reprlib.repr(value)[:80]};"
            " plain containers, numbers, texts and NumPy numbers and arrays are admitted"
        )


class _Name(tuple):
    """Module and name in a pickle, which are compared and never looked up."""


@dataclass
class _Made:
    """What a call made: a NumPy type, number or array, which a second step may complete."""

    value: Any = None


def read_pickle(data: bytes) -> Any:
    """The plain value in a pickle of protocol 3, 4 or 5.

    Raises:
        PickleRefused: it holds anything else, or too much of it.
    """
    reader = _Reader()
    try:
        if len(data) > MAX_BYTES:
            raise PickleRefused("too many bytes,", len(data))
        for instruction, argument, _ in pickletools.genops(data):  # type: ignore[misc]
            reader.run(instruction.name, argument)
        [value] = reader.stack
        return reader.copy(value, is_final=True)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, PickleRefused):
            raise
        raise PickleRefused("it is damaged or truncated,", str(error)) from error


class _Reader:
    """Carries out instructions on a stack of values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.left = MAX_VALUES

    def run(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        self._count()
        taken = self._take(_TAKES.get(name, 0))
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "APPEND" | "APPENDS":
                _check(self.stack[-1], list).extend(taken)
            case "SETITEM" | "SETITEMS":
                _check(self.stack[-1], dict).update(_pairs(taken[::2], taken[1::2]))
            case "BUILD":
                _complete(_check(self.stack[-1], _Made), *taken)
            case "MEMOIZE" | "BINPUT" | "LONG_BINPUT":
                self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
            case _:
                self.stack.append(self._make(name, argument, taken))

    def _make(self, name: str, argument: Any, taken: list[Any]) -> Any:
        if name in _SCALARS:
            return argument
        if name in ("BINGET", "LONG_BINGET"):
            return self.copy(self.memo[argument])
        if name == "GLOBAL":
            return _Name(argument.split(" "))
        if name not in _MAKES:
            raise PickleRefused("the instruction", name)
        return _MAKES[name](*taken)

    def copy(self, value: Any, depth: int = MAX_DEPTH, is_final: bool = False) -> Any:
        """A copy of the containers in a value; the final one holds nothing unfinished."""
        self._count(depth)
        if type(value) is dict:
            return {key: self.copy(each, depth - 1, is_final) for key, each in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.copy(each, depth - 1, is_final) for each in value)
        if not is_final or not isinstance(value, _Made | _Name):
            return value
        return _check(_check(value, _Made).value, np.ndarray, np.generic)

    def _count(self, depth: int = 0) -> None:
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise PickleRefused("too many instructions, values or levels, more than", MAX_VALUES)

    def _take(self, count: int) -> list[Any]:
        if count < 0:
            taken, self.stack = self.stack, self.below.pop()
            return taken
        return [self.stack.pop() for _ in range(count)][::-1]


def _check(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise PickleRefused(f"a value that is no {kinds[0].__name__},", value)
    return value


def _pairs(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    for key in keys:
        if type(key) is not str and (type(key) is not int or abs(key) > MAX_KEY):
            raise PickleRefused("a key other than texts and small integers,", key)
    return dict(zip(keys, values, strict=True))


def _call(function: Any, arguments: Any) -> _Made:
    """What the constructors of NumPy 1 (`numpy.core`) and 2 (`numpy._core`) would make."""
    module, name = _check(function, _Name)
    match module.replace("numpy.core", "numpy._core"), name, arguments:
        case "numpy", "dtype", (kind, _, _) if kind in KINDS:
            return _Made(np.dtype(kind))
        case "numpy._core.multiarray", "_reconstruct", (("numpy", "ndarray"), (0,), b"b"):
            return _Made()
        case "numpy._core.multiarray", "scalar", (_Made(np.dtype() as kind), data):
            return _Made(_array(data, kind, (), "C")[()])
        case "numpy._core.numeric", "_frombuffer", (data, _Made(np.dtype() as kind), shape, order):
            return _Made(_array(data, kind, shape, order))
    raise PickleRefused("a call of", (module, name, arguments))


def _complete(made: _Made, state: Any) -> None:
    match made.value, state:
        case np.dtype() as kind, (3, "<" | ">" | "|" as order, None, None, None, -1, -1, 0):
            made.value = kind.newbyteorder(order)
        case None, (1, shape, _Made(np.dtype() as kind), is_fortran, data):
            made.value = _array(data, kind, shape, "F" if is_fortran is True else "C")
        case _:
            raise PickleRefused("the state", state)


def _array(data: Any, kind: np.dtype, shape: Any, order: Any) -> np.ndarray:
    """An array over bytes, if type and shape need exactly as many."""
    sides = [side for side in _check(shape, tuple) if type(side) is int and 0 <= side < 2**31]
    claimed = math.prod(sides) * kind.itemsize
    if len(sides) < len(shape) or len(sides) > 8 or claimed != len(_check(data, bytes, bytearray)):
        raise PickleRefused("an array whose bytes do not fit its shape", shape)
    return np.frombuffer(data, kind).reshape(shape, order="F" if order == "F" else "C")
