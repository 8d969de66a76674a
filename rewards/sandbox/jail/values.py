"""JSON of values: numbers, text, bytes, None and the standard containers, and no code.

Of a subclass only the content is sent, so an object that claims to equal everything arrives as a
plain value. What is no plain value is replaced by a reference, see `peer.py`.
"""

import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Nesting depth of a value of the candidate; tests may wrap it as often again."""
MUTABLE = (list, dict, set, collections.deque)
_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset, collections.deque)}
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


def encode(value: Any, reference: Callable[[Any], list[Any]], depth: int = MAX_DEPTH) -> Any:
    """JSON of a value; `reference` encodes whatever is not a plain value.

    Raises:
        TypeError: the value is nested more than `depth` deep.
    """
    if depth < 0:
        raise TypeError("nested too deep to be sent")
    if value is None or isinstance(value, bool):
        return value
    for tag, (kind, spelled, _) in _TEXTUAL.items():
        if isinstance(value, kind):
            return [tag, spelled(value)]
    for tag, kind in _SEQUENCES.items():
        if isinstance(value, kind):
            return [tag, [encode(item, reference, depth - 1) for item in value]]
    if isinstance(value, range):
        return ["range", [value.start, value.stop, value.step]]
    if isinstance(value, dict):
        pairs = [[encode(part, reference, depth - 1) for part in pair] for pair in value.items()]
        return ["dict", pairs]
    return reference(value)


def decode(body: Any, resolve: Callable[[list[Any]], Any]) -> Any:
    """The value of what `encode` wrote; `resolve` turns references into objects."""
    if body is None or isinstance(body, bool):
        return body
    tag, content = body[:2]
    if tag in _TEXTUAL:
        return _TEXTUAL[tag][2](content)
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](decode(item, resolve) for item in content)
    if tag == "range":
        return range(*content)
    if tag == "dict":
        return {decode(key, resolve): decode(value, resolve) for key, value in content}
    return resolve(body)


def overwrite(old: Any, new: Any) -> None:
    """Give a container the content of another one of its kind."""
    if any(isinstance(old, kind) and isinstance(new, kind) for kind in MUTABLE):
        old.clear()
        getattr(old, "extend" if hasattr(old, "extend") else "update")(new)
