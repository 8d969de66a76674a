"""One end of the connection between a tester and its candidate.

Plain values (numbers, text, bytes, None, the standard containers) are sent as JSON; of a subclass
only the content, so an object that claims to equal everything arrives as a plain value. Any other
object stays in its process. The other one gets a reference to it (its owner, its number, and what
there is to know) and makes a proxy, of which every use is a request. A process that waits for an
answer answers requests meanwhile.
"""

import builtins
import collections
import contextlib
import datetime
import decimal
import fractions
import threading
from collections.abc import Callable
from typing import Any

from .wire import Gone, receive, send

MAX_DEPTH = 100
"""Nesting depth of a value of the candidate; tests may wrap it as often again."""
_MUTABLE = (list, dict, set, collections.deque)
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
    "range": (range, lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
}


class Peer:
    """Stores the objects that the other process refers to, and uses those of the other.

    Attributes:
        own: the word for this process in references.
        deepest: nesting depth of what it sends.
        limit: the largest message it reads, in bytes.
        objects: its objects, by number.
    """

    own, deepest, limit = "", MAX_DEPTH, 1 << 32

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._turn = threading.RLock()

    def use(self, action: str, number: int, /, *arguments: Any, **named: Any) -> Any:
        """Have an object of the other process used; arguments that it modifies change here too.

        Raises:
            Gone: the other process does not answer.
            Exception: what the code there raised, or `RuntimeError` for an unknown class and for
                `StopIteration`.
        """
        request = {"do": action, "object": number, "arguments": list(map(self.encode, arguments))}
        request["named"] = {name: self.encode(value) for name, value in named.items()}
        with self._turn:
            reply = self.exchange(request)
        if "raised" in reply:
            raise _build_exception(str(reply["raised"]), str(reply.get("text")))
        for n, body in dict(reply.get("changed") or {}).items():
            old, new = arguments[int(n)], self.decode(body)
            if any(isinstance(old, kind) and isinstance(new, kind) for kind in _MUTABLE):
                old.clear()
                getattr(old, "extend" if hasattr(old, "extend") else "update")(new)
        return self.decode(reply.get("value"))

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        while True:
            send(self.channel, message)
            reply = receive(self.channel, self.limit)
            if not isinstance(reply, dict):
                raise Gone("an answer that is not one")
            if "do" not in reply:
                return reply
            message = self.answer(reply)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the other process asks for: the value or the exception."""
        try:
            bodies = request["arguments"]
            arguments = [self.decode(body, is_argument=True) for body in bodies]
            named = {str(n): self.decode(b, is_argument=True) for n, b in request["named"].items()}
            value = self.perform(request["do"], request["object"], arguments, named)
            changed = {
                n: now
                for n, (body, argument) in enumerate(zip(bodies, arguments, strict=True))
                if isinstance(argument, _MUTABLE) and (now := self.encode(argument)) != body
            }
            return {"value": self.encode(value), "changed": changed}
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)[:200]}

    def encode(self, value: Any, depth: int = 0) -> Any:
        """JSON of a value.

        Raises:
            TypeError: it is nested too deep, or holds what cannot be handed over.
        """
        if depth > self.deepest:
            raise TypeError("nested too deep to be sent")
        if value is None or isinstance(value, bool):
            return value
        for tag, (kind, write, _) in _WRITTEN.items():
            if isinstance(value, kind):
                return [tag, write(value)]
        for tag, kind in _CONTAINERS.items():
            if isinstance(value, kind):
                items = value.items() if kind is dict else value
                return [tag, [self.encode(item, depth + 1) for item in items]]
        return self.refer(value)

    def decode(self, body: Any, is_argument: bool = False) -> Any:
        """The value of JSON of the other process; an argument is handed to an own object."""
        if body is None or isinstance(body, bool):
            return body
        tag, content = body[:2]
        if tag in _WRITTEN:
            return _WRITTEN[tag][2](content)
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](self.decode(item, is_argument) for item in content)
        return self.resolve(*body, is_argument=is_argument)

    def refer(self, value: Any) -> list[Any]:
        """The reference to an object."""
        number = self._numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return [self.own, number, self.describe(value, number)]

    def resolve(self, owner: str, number: int, about: Any, is_argument: bool = False) -> Any:
        """The object of a reference, or a proxy for it."""
        return self.objects[number] if owner == self.own else self.borrow(number, about)

    def perform(self, action: str, number: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Use an own object as the other process asks."""
        raise NotImplementedError

    def describe(self, value: Any, number: int) -> Any:
        """What the other process needs to know of an own object."""

    def borrow(self, number: int, about: Any) -> Any:
        """A proxy for an object of the other process."""
        raise NotImplementedError


def _build_exception(name: str, text: str) -> Exception:
    kind: Any = getattr(builtins, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, Exception)
    # as in a generator (PEP 479): `all(map(f, xs))` would read StopIteration as the end of xs
    if is_known and kind is not StopIteration:
        with contextlib.suppress(TypeError):
            return kind(text)
    return RuntimeError(f"{name}: {text}")
