"""Values of a candidate as JSON.

Plain values (numbers, text, bytes, None, dates, the standard containers) are copied; of a subclass
only the content, so an object that claims to equal everything arrives as a plain value. Any other
object stays with the candidate and is sent as its number.
"""

import collections
import datetime
import decimal
import fractions
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


def encode(value: Any, number: Callable[[Any], int], depth: int = 0) -> Any:
    """JSON of a value; `number` numbers objects.

    Raises:
        TypeError: it is nested too deep.
    """
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
