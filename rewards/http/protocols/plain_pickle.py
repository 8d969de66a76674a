"""Pickles of plain values from servers that are not trusted.

    read_pickle(pickle.dumps({"scores": [0.5, np.float32(0.25)]}))

A pickle is a program, and loading one runs what it names. So its instructions are checked before
`pickle.Unpickler` runs them: which they are, how many, that every value they take is there and of
the right kind, and that keys are scalars (hashing a tuple may take forever). Names are looked up in
`mmrl.rewards.http.protocols.pickle_constructors`, which holds all that may be called; other names
are refused. The value that results is limited in size and depth, shared parts of it are copied, and
it cannot contain itself.

What Python 3 writes with protocols 2 to 5 is read.
"""

import io
import pickle
import pickletools
from collections.abc import Iterable
from typing import Any, cast

from mmrl.rewards.http.protocols.pickle_constructors import (
    MAX_KEY,
    NAMES,
    Allowance,
    Constructor,
    PickleRefused,
    Unfinished,
)

MAX_BYTES = 2**24
"""Longest pickle, and the bytes that its constructors may allocate together."""
MAX_INSTRUCTIONS = 2**18
MAX_VALUES = 2**18
"""Values in all, each counted as often as it is contained."""
MAX_DEPTH = 64

_INSTRUCTIONS = (
    "PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT"
    " SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8"
    " EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT SETITEM SETITEMS"
    " EMPTY_SET ADDITEMS FROZENSET BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET"
    " GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_ADMITTED = frozenset(_INSTRUCTIONS.split())
_TAKES = {op.name: [each.name for each in op.stack_before] for op in pickletools.opcodes}
_GIVES = {op.name: op.stack_after[0].name for op in pickletools.opcodes if op.stack_after}
_GIVES |= {"GLOBAL": "name", "STACK_GLOBAL": "name", "REDUCE": "made", "BUILD": "made"}
_SCALARS = ("str", "bytes", "int", "int_or_bool", "float", "bool", "None")


def read_pickle(data: bytes) -> Any:
    """The plain value in a pickle.

    Raises:
        PickleRefused: it holds anything else, or too much of it; nothing it names was run.
    """
    if len(data) > MAX_BYTES:
        raise PickleRefused(f"{len(data):,} bytes; {MAX_BYTES:,} are read")
    try:
        _check(data)
        value = _Unpickler(io.BytesIO(data)).load()
    except PickleRefused:
        raise
    except Exception as error:  # the standard library raises many kinds for what is damaged
        raise PickleRefused(f"it is damaged or truncated: {error}") from error
    return _copy(value, [MAX_VALUES], MAX_DEPTH)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._allowance = Allowance(MAX_BYTES)

    def find_class(self, module: str, name: str) -> Constructor:
        if (module, name) not in NAMES:
            raise PickleRefused(f"the name {module[:80]}.{name[:80]}")
        return Constructor(NAMES[module, name], self._allowance)


def _check(data: bytes) -> None:
    """Follow the kinds of values on the stack through all instructions.

    Raises:
        PickleRefused: an instruction that is not admitted, or one that takes what is not there.
        ValueError: an argument that is damaged or truncated.
    """
    stack = _Stack()
    program = cast(Iterable[tuple[pickletools.OpcodeInfo, Any, int]], pickletools.genops(data))
    for number, (instruction, argument, at) in enumerate(program):
        name = instruction.name
        if name not in _ADMITTED:
            raise PickleRefused(f"the instruction {name}")
        if number == MAX_INSTRUCTIONS:
            raise PickleRefused(f"more than {MAX_INSTRUCTIONS:,} instructions")
        if name == "PROTO" and not 2 <= argument <= 5:
            raise PickleRefused(f"protocol {argument}; 2 to 5 are read")
        if name == "FRAME" and argument > len(data) - at - 9:
            raise PickleRefused(f"a frame of {argument:,} bytes, where it is truncated")
        if name == "STOP" and (len(stack.kinds) != 1 or stack.marks or at + 1 != len(data)):
            raise PickleRefused("it ends with more or less than one value")
        stack.run(name, argument)


class _Stack:
    """Kinds of values where the unpickler has values: names of `pickletools`, and "name" for a
    constructor, "made" for its result, "large" for an integer that is no key."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.marks: list[int] = []
        self.memo: dict[int, str] = {}

    def run(self, name: str, argument: Any) -> None:
        """Take the values that an instruction takes, and put its result."""
        wanted, items = _TAKES[name], []
        if name == "MARK":
            self.marks.append(len(self.kinds))
            return
        if "mark" in wanted:
            if not self.marks:
                raise PickleRefused("a mark is missing")
            items, wanted = self.take(len(self.kinds) - self.marks.pop()), wanted[:-2]
        taken = self.take(len(wanted)) if wanted else []
        for kind, expected in zip(taken, wanted, strict=True):
            if expected not in ("any", kind):
                raise PickleRefused(f"{name} of {kind}, not {expected}")
        if name == "REDUCE" and taken != ["name", "tuple"]:
            raise PickleRefused(f"a call of {taken[0]} with {taken[1]}")
        if name == "BUILD" and taken[0] != "made":
            raise PickleRefused(f"a state for {taken[0]}")
        _check_keys(name, [*taken[1:], *items])
        if name in ("BINGET", "LONG_BINGET"):
            self.kinds.append(self._recall(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._remember(argument)
        elif name == "MEMOIZE":
            self.kinds += taken
            self._remember(len(self.memo))
        elif name in _GIVES:
            is_large = name == "LONG1" and abs(argument) > MAX_KEY
            self.kinds.append("large" if is_large else _GIVES[name])

    def take(self, count: int) -> list[str]:
        """The last kinds, which are no longer there."""
        start = len(self.kinds) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise PickleRefused("it takes a value that is not there")
        taken = self.kinds[start:]
        del self.kinds[start:]
        return taken

    def _remember(self, number: int) -> None:
        if number > MAX_INSTRUCTIONS:  # the unpickler allocates as many places
            raise PickleRefused(f"value {number:,} to remember")
        [self.memo[number]] = kind = self.take(1)
        self.kinds += kind

    def _recall(self, number: int) -> str:
        if number not in self.memo:
            raise PickleRefused(f"it remembers value {number}, which was never there")
        return self.memo[number]


def _check_keys(name: str, items: list[str]) -> None:
    if name == "SETITEMS" and len(items) % 2:
        raise PickleRefused("a key without a value")
    if name not in ("SETITEM", "SETITEMS", "ADDITEMS", "FROZENSET"):
        return
    for kind in items[::2] if name.startswith("SETITEM") else items:
        if kind not in _SCALARS:
            raise PickleRefused(f"a value that is {kind} as a key or member")


def _copy(value: Any, left: list[int], depth: int) -> Any:
    """A copy in which arrays are finished; `left` holds the number of values that it may have."""
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise PickleRefused(
            f"more than {MAX_VALUES:,} values or {MAX_DEPTH} levels, or a value inside itself"
        )
    if isinstance(value, Unfinished):
        return value.value()
    if isinstance(value, Constructor):
        raise PickleRefused(f"{value} as a value")
    if type(value) is dict:
        return {key: _copy(each, left, depth - 1) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(each, left, depth - 1) for each in value)
    if type(value) in (set, frozenset):
        left[0] -= len(value)
    return value
