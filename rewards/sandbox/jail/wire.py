"""Messages between the processes of the sandbox: JSON, one on a line, and values as JSON.

Plain values (numbers, text, bytes, None, dates, the standard containers) are copied; of a subclass
only the content, so an object that claims to equal everything arrives as a plain value. Any other
object stays with the candidate and is sent as its number.
"""

import collections
import datetime
import decimal
import fractions
import json
import os
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Nesting depth of a value."""
MUTABLE = (list, dict, set, collections.deque)
_CONTAINERS: dict[str, Any] = {
    kind.__name__: kind for kind in (list, tuple, dict, set, frozenset, collections.deque)
}
_WRITTEN: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (int, hex, lambda text: int(text, 16)),
    "float": (float, float.hex, float.fromhex),
    "complex": (complex, repr, complex),
    "str": (str, str.__str__, str),
    "bytes": (bytes | bytearray, lambda value: bytes(value).hex(), bytes.fromhex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "timedelta": (
        datetime.timedelta,
        lambda time: [time.days, time.seconds, time.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    "range": (range, lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
}


class Gone(BaseException):
    """The other process ended or broke the protocol; `except Exception` does not catch it."""


def send(fd: int, message: Any) -> None:
    """Write one message."""
    data = memoryview(json.dumps(message).encode() + b"\n")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        raise Gone("the process ended") from error


def receive(fd: int, limit: int = 1 << 32) -> Any:
    """Read one message of at most `limit` bytes; the other process sends the next one only after an
    answer. Raises Gone: the stream ended, or the message is too long or not JSON."""
    data = bytearray()
    while not data.endswith(b"\n"):
        try:
            part = os.read(fd, 1 << 20)
        except OSError:
            part = b""
        if not part:
            raise Gone("the process ended")
        data += part
        if len(data) > limit:
            raise Gone(f"a message of more than {limit} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Gone("a message that cannot be read") from error


def encode(value: Any, number: Callable[[Any], int], depth: int = 0) -> Any:
    """JSON of a value; `number` numbers objects. Raises TypeError: it is nested too deep."""
    if depth > MAX_DEPTH:
        raise TypeError("nested too deep to be sent")
    if value is None or isinstance(value, bool):
        return value
    for tag, (kind, write, _) in _WRITTEN.items():
        if isinstance(value, kind):
            return [tag, write(value)]
    for tag, kind in _CONTAINERS.items():
        if isinstance(value, kind):
            items = value.items() if kind is dict else value
            return [tag, [encode(item, number, depth + 1) for item in items]]
    return ["object", number(value)]


def decode(body: Any, proxy: Callable[[int], Any]) -> Any:
    """The value of JSON; `proxy` makes the proxy of an object. The JSON of a candidate may be
    anything, on which this raises an exception."""
    if body is None or isinstance(body, bool):
        return body
    tag, content = body
    if tag in _CONTAINERS:
        return _CONTAINERS[tag](decode(item, proxy) for item in content)
    return proxy(int(content)) if tag == "object" else _WRITTEN[tag][2](content)
