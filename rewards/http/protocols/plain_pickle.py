"""Pickles of plain values, read without pickle.

    read_pickle(pickle.dumps({"scores": [0.5, np.float32(0.25)]}))

A pickle is a program: loading one runs whatever it names. This reader is another machine for the
same instructions, with no instruction that could import or call anything. It knows containers,
numbers, texts, bytes, and the few names by which NumPy writes numbers and arrays
(`rewards.http.protocols.plain_numpy`), for which it has constructors of its own; every other name
is refused by name. What a pickle may claim is bounded before it is believed: bytes, instructions,
nesting, values, digits, and what its constructors make. Values that contain themselves are refused;
what is shared in a pickle is a copy here.

It reads the instructions that Python 3 writes with protocols 2 to 5; their meaning follows the
standard library's `pickletools`.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any

from rewards.http.protocols.plain_numpy import NAMES, Name, Shell, built
from rewards.http.protocols.plain_values import PickleRefused, keys, shown

__all__ = ["PickleRefused", "read_pickle"]

MAX_BYTES = 2**24
"""Longest pickle, and the bytes that its constructors may make together."""
MAX_INSTRUCTIONS = 2**18
_NAMES = {each.code.encode("latin-1"): each.name for each in pickletools.opcodes}
MAX_VALUES = 2**18
"""Values in all, each counted as often as it is contained."""
MAX_DEPTH = 64


def read_pickle(data: bytes) -> Any:
    """The plain value in a pickle.

    Raises:
        PickleRefused: it holds anything else, or too much of it; nothing it names was run.
    """
    if len(data) > MAX_BYTES:
        raise PickleRefused(f"{len(data):,} bytes; {MAX_BYTES:,} are read")
    machine = _Machine(data)
    try:
        return _settled(machine.run(), [MAX_VALUES], MAX_DEPTH)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        # an argument or a value is not there, or is no text
        raise PickleRefused(f"it is damaged or cut off at byte {machine.at}: {error}") from error


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.left = data, 0, MAX_BYTES
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MAX_INSTRUCTIONS):
            code = self.take(1)
            if code == b".":
                if len(self.stack) != 1 or self.marks or self.at != len(self.data):
                    raise PickleRefused("it ends with more or less than one value")
                return self.stack.pop()
            work = _WORK.get(code)
            if work is None:
                raise PickleRefused(f"the instruction {_NAMES.get(code, code)!s}")
            work(self)
        raise PickleRefused(f"more than {MAX_INSTRUCTIONS:,} instructions")

    def take(self, size: int) -> bytes:
        """The next bytes of the pickle."""
        end = self.at + size
        if end > len(self.data):
            raise PickleRefused(f"it claims {size:,} bytes at {self.at}, where it is cut off")
        self.at, found = end, self.data[self.at : end]
        return found

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def sized(self, layout: str) -> bytes:
        return self.take(self.number(layout))

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 200)
        if end < 0:
            raise PickleRefused("a name without an end")
        return self.take(end + 1 - self.at)[:-1].decode()

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise PickleRefused("it takes a value that is not there")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        """The value on the stack, which stays there."""
        value = self.pop()
        if type(value) is not kind:
            raise PickleRefused(f"it fills a {type(value).__name__} as a {kind.__name__}")
        self.stack.append(value)
        return value

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise PickleRefused("a mark is missing")
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def several(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def protocol(self) -> None:
        number = self.number("B")
        if not 2 <= number <= 5:
            raise PickleRefused(f"protocol {number}; 2 to 5 are read")

    def integer(self) -> None:
        self.push(int.from_bytes(self.sized("B"), "little", signed=True))

    def put(self, number: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[number] = value

    def get(self, number: int) -> None:
        if number not in self.memo:
            raise PickleRefused(f"it remembers value {number}, which was never there")
        self.push(self.memo[number])

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def add(self, values: list[Any]) -> None:
        self.top(set).update(keys(values))

    def set_items(self, values: list[Any]) -> None:
        if len(values) % 2:
            raise PickleRefused("a key without a value")
        self.top(dict).update(zip(keys(values[::2]), values[1::2], strict=True))

    def name(self, module: Any, name: Any) -> None:
        texts = type(module) is type(name) is str
        if not texts or (module, name) not in NAMES:
            said = f"{shown(module)}.{shown(name)}".replace("'", "")
            raise PickleRefused(f"the name {said}")
        self.push(NAMES[module, name])

    def call(self) -> None:
        name, arguments = self.several(2)
        if not isinstance(name, Name) or type(arguments) is not tuple:
            raise PickleRefused(f"a call of {shown(name)}")
        value, size = built(name, arguments, self.left)
        self.left -= size
        self.push(value)

    def build(self) -> None:
        state = self.pop()
        shell = self.pop()
        if not isinstance(shell, Shell):
            raise PickleRefused(f"a state for {shown(shell)}")
        shell.set_state(state)
        self.push(shell)


def _settled(value: Any, left: list[int], depth: int) -> Any:
    """A value with its arrays in place, counted on the way."""
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        raise PickleRefused(
            f"more than {MAX_VALUES:,} values or {MAX_DEPTH} levels, or a value inside itself"
        )
    if isinstance(value, Shell):
        return value.value()
    if isinstance(value, Name):
        raise PickleRefused(f"{value} as a value")
    if type(value) is dict:
        return {key: _settled(each, left, depth - 1) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_settled(each, left, depth - 1) for each in value)
    if type(value) in (set, frozenset):
        left[0] -= len(value)
    return value


Work = Callable[[_Machine], None]
_WORK: dict[bytes, Work] = {
    b"\x80": _Machine.protocol,
    b"\x95": lambda m: _frame(m),
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"\x8a": _Machine.integer,
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8c": lambda m: m.push(m.sized("B").decode("utf-8", "surrogatepass")),
    b"X": lambda m: m.push(m.sized("<I").decode("utf-8", "surrogatepass")),
    b"\x8d": lambda m: m.push(m.sized("<Q").decode("utf-8", "surrogatepass")),
    b"C": lambda m: m.push(m.sized("B")),
    b"B": lambda m: m.push(m.sized("<I")),
    b"\x8e": lambda m: m.push(m.sized("<Q")),
    b"\x96": lambda m: m.push(bytearray(m.sized("<Q"))),
    b"]": lambda m: m.push([]),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.since_mark()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.push(tuple(m.since_mark())),
    b"\x85": lambda m: m.push(m.several(1)),
    b"\x86": lambda m: m.push(m.several(2)),
    b"\x87": lambda m: m.push(m.several(3)),
    b"}": lambda m: m.push({}),
    b"s": lambda m: m.set_items(list(m.several(2))),
    b"u": lambda m: m.set_items(m.since_mark()),
    b"\x8f": lambda m: m.push(set()),
    b"\x90": lambda m: m.add(m.since_mark()),
    b"\x91": lambda m: m.push(frozenset(keys(m.since_mark()))),
    b"q": lambda m: m.put(m.number("B")),
    b"r": lambda m: m.put(m.number("<I")),
    b"\x94": lambda m: m.put(len(m.memo)),
    b"h": lambda m: m.get(m.number("B")),
    b"j": lambda m: m.get(m.number("<I")),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"\x93": lambda m: m.name(*m.several(2)),
    b"R": _Machine.call,
    b"b": _Machine.build,
}
"""What each instruction does; arguments stand behind it, least significant byte first."""


def _frame(machine: _Machine) -> None:
    """A frame only says how many bytes belong together."""
    size = machine.number("<Q")
    if size > len(machine.data) - machine.at:
        raise PickleRefused(f"a frame of {size:,} bytes, where it is cut off")
