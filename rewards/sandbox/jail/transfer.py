"""Messages between tester and candidate: JSON with its length before it, values and no code.

Numbers, text, bytes, None and the standard containers are sent by value. Of a subclass only the
content is sent, so an object that claims to equal everything arrives as a plain value. Any other
object is replaced by a reference: `reference` and the number of an object of the candidate,
`handed` and the number of an object of the tester (lending.py), or the name of a `type`.
"""

import collections
import datetime
import decimal
import fractions
import json
import os
import select
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

MAX_DEPTH = 100
"""Nesting depth of a value of the candidate; tests may wrap it as often again."""
STANDING_FOR = ("reference", "handed", "type")


class WireError(Exception):
    """The other process ended, is too slow, or sent too much or an invalid message."""


class Unsendable(TypeError):
    """A value that cannot be sent."""


def send(fd: int, message: Any) -> None:
    """Write one message."""
    body = json.dumps(message).encode()
    data = memoryview(struct.pack("<I", len(body)) + body)
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        raise WireError("the process ended") from error


def receive(fd: int, limit: int | None = None, deadline: float | None = None) -> Any:
    """Read one message.

    Args:
        fd: a pipe or socket.
        limit: largest message in bytes.
        deadline: value of `time.monotonic()` by which all of it must have arrived.

    Raises:
        WireError: the stream ended, the message is too long or not JSON, or the deadline passed.
    """
    (size,) = struct.unpack("<I", _exactly(fd, 4, deadline))
    if limit is not None and size > limit:
        raise WireError(f"a message of {size} bytes; the limit is {limit}")
    try:
        return json.loads(_exactly(fd, size, deadline))
    except (ValueError, RecursionError) as error:
        raise WireError("a message that cannot be read") from error


def _exactly(fd: int, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        if deadline is not None:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([fd], [], [], left)[0]:
                raise WireError("out of time")
        try:
            part = os.read(fd, min(size, 1 << 20))
        except OSError as error:
            raise WireError("the process ended") from error
        if not part:
            raise WireError("the process ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


Reference = Callable[[Any], list[Any]]
"""Returns a tag of `STANDING_FOR` and its content, for an object that is not sent by value."""

_SEQUENCES = {
    "list": (list, list),
    "tuple": (tuple, tuple),
    "set": (set, set),
    "frozenset": (frozenset, frozenset),
    "deque": (collections.deque, collections.deque),
}
_TEXTUAL: dict[str, tuple[Any, Callable[[Any], str], Callable[[str], Any]]] = {
    "int": (int, hex, lambda text: int(text, 16)),
    "float": (float, float.hex, float.fromhex),
    "complex": (complex, repr, complex),
    "str": (str, str.__str__, str),
    "bytes": (bytes | bytearray, lambda value: bytes(value).hex(), bytes.fromhex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (
        fractions.Fraction,
        lambda value: f"{value.numerator:x}/{value.denominator:x}",
        lambda text: fractions.Fraction(*(int(part, 16) for part in text.split("/"))),
    ),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
}


def encode(value: Any, reference: Reference, depth: int = MAX_DEPTH) -> Any:
    """JSON of a value; `reference` encodes whatever is not a plain value.

    Raises:
        Unsendable: the value is nested more than `depth` deep, or `reference` refuses it.
    """
    if depth < 0:
        raise Unsendable("nested too deep to be sent")
    if value is None or isinstance(value, bool):
        return value
    for tag, (kind, spelled, _) in _TEXTUAL.items():
        if isinstance(value, kind):
            return [tag, spelled(value)]
    for tag, (kind, _) in _SEQUENCES.items():
        if isinstance(value, kind):
            return [tag, [encode(item, reference, depth - 1) for item in value]]
    if isinstance(value, range):
        return ["range", [value.start, value.stop, value.step]]
    if isinstance(value, dict):
        pairs = [[encode(part, reference, depth - 1) for part in pair] for pair in value.items()]
        return ["dict", pairs]
    return reference(value)


Referenced = Callable[[str, Any], Any]
"""Resolves a tag of `STANDING_FOR` and its content."""


def decode(body: Any, referenced: Referenced) -> Any:
    """The value of what `encode` wrote; `referenced` resolves references.

    Raises:
        WireError: `encode` did not write it.
    """
    try:
        return _decode(body, referenced)
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
        raise WireError(f"a value that cannot be read: {error}") from error


def _decode(body: Any, referenced: Referenced) -> Any:
    if body is None or isinstance(body, bool):
        return body
    tag, content = body
    if tag in _TEXTUAL:
        return _TEXTUAL[tag][2](content)
    if tag in _SEQUENCES:
        return _SEQUENCES[tag][1](_decode(item, referenced) for item in content)
    if tag == "range":
        return range(*content)
    if tag == "dict":
        return {_decode(k, referenced): _decode(v, referenced) for k, v in content}
    if tag in STANDING_FOR:
        return referenced(tag, content)
    raise ValueError(f"unknown tag {tag!r}")


_MUTABLE = ("list", "dict", "set", "deque")


def find_changes(
    before: Sequence[Any], arguments: Sequence[Any], encoded: Callable[[Any], Any]
) -> dict[int, Any]:
    """New contents of the containers among the arguments that a call has modified.

    Args:
        before: JSON of the arguments before the call.
        arguments: the same after the call.
        encoded: JSON of a value.
    """
    changed = {}
    for n, (body, argument) in enumerate(zip(before, arguments, strict=True)):
        if isinstance(body, list) and body[0] in _MUTABLE:
            now = encoded(argument)
            if now != body:
                changed[n] = now
    return changed


def apply_changes(arguments: Sequence[Any], changed: Any, decoded: Callable[[Any], Any]) -> None:
    """Apply what the other process has changed in its copies of the arguments of a call."""
    for n, body in changed.items() if isinstance(changed, dict) else ():
        _overwrite(arguments[int(n)], decoded(body))


def _overwrite(old: Any, new: Any) -> None:
    if isinstance(old, list) and isinstance(new, list):
        old[:] = new
    elif type(old) is type(new) and isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif type(old) is type(new) and hasattr(old, "extend"):
        old.clear()
        old.extend(new)
