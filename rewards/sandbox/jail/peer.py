"""One end of the connection between a tester and its candidate.

An object that is no plain value stays in its process. The other one gets a reference to it (its
owner, its number, and what there is to know) and makes a proxy, of which every use is a request.
A process that waits for an answer answers requests meanwhile.
"""

import builtins
import operator
import threading
from collections.abc import Callable
from typing import Any

from .values import MAX_DEPTH, MUTABLE, decode, encode, overwrite
from .wire import Gone, receive, send

_PLAIN_TYPES = "int float complex bool str bytes list tuple set frozenset dict range"
PLAIN_TYPES = {name: getattr(builtins, name) for name in _PLAIN_TYPES.split()}
PLAIN_TYPES["NoneType"] = type(None)
"""Types that a candidate may return; using them in a test is harmless."""
_BY_OPERATOR = "eq ne lt le gt ge add sub mul truediv floordiv mod pow neg getitem setitem contains"
OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _BY_OPERATOR.split()},
    **{"len": len, "iter": iter, "hash": hash, "bool": bool, "str": str, "repr": repr},
}
"""By the name between the underscores of the method."""


def take_next(iterator: Any) -> tuple[Any, ...]:
    """The next item of an iterator; nothing at its end."""
    try:
        return (next(iterator),)
    except StopIteration:
        return ()


ACTIONS: dict[str, Callable[..., Any]] = {
    **{"getattr": getattr, "setattr": setattr, "next": take_next, "list": list},
    **{"call": lambda function, *arguments, **named: function(*arguments, **named)},
    **OPERATORS,
}
"""What a process may have done with an object of the other."""


class Peer:
    """Stores the objects that the other process refers to, and uses those of the other.

    Attributes:
        own: the word for this process in references.
        objects: its objects, by number.
        limit: the largest message in bytes.
        deadline: by when an answer must be there, by `time.monotonic()`.
    """

    own, depth, limit = "", MAX_DEPTH, 1 << 32

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.objects: list[Any] = []
        self.deadline: float | None = None
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, Any] = {}
        self._bodies: dict[int, tuple[Any, list[Any]]] = {}
        self._turn = threading.RLock()

    def use(self, action: str, number: int, /, *arguments: Any, **named: Any) -> Any:
        """Have an object of the other process used; arguments that it modifies change here too.

        Raises:
            Gone: the other process does not answer.
            Exception: what the code there raised, or `RuntimeError` for an unknown class and for
                `StopIteration`.
        """
        sent = {"arguments": [self.encode(argument) for argument in arguments]}
        request = {"do": action, "object": number, **sent}
        request["named"] = {name: self.encode(value) for name, value in named.items()}
        with self._turn:
            reply = self.exchange(request)
        if "raised" in reply:
            raise _build_exception(reply)
        for n, body in dict(reply.get("changed") or {}).items():
            overwrite(arguments[int(n)], self.decode(body))
        return self.decode(reply.get("value"))

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        while True:
            send(self.channel, message)
            reply = receive(self.channel, self.limit, self.deadline)
            if not isinstance(reply, dict):
                raise Gone("an answer that is not one")
            if "do" not in reply:
                return reply
            message = self.answer(reply)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the other process asks for: the value or the exception."""
        try:
            bodies = request["arguments"]
            arguments = [decode(body, self.resolve_argument) for body in bodies]
            named = {str(n): decode(b, self.resolve_argument) for n, b in request["named"].items()}
            value = self.perform(request["do"], request["object"], arguments, named)
            changed = {
                n: now
                for n, (body, argument) in enumerate(zip(bodies, arguments, strict=True))
                if isinstance(argument, MUTABLE) and (now := self.encode(argument)) != body
            }
            return {"value": self.encode(value), "changed": changed}
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)[:200]}

    def perform(self, action: str, number: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Use an own object."""
        return ACTIONS[action](self.objects[number], *arguments, **named)

    def encode(self, value: Any) -> Any:
        """JSON of a value."""
        return encode(value, self.refer, self.depth)

    def decode(self, body: Any) -> Any:
        """The value of JSON of the other process."""
        return decode(body, self.resolve)

    def refer(self, value: Any) -> list[Any]:
        """The reference to an object of either process."""
        if id(value) in self._bodies:
            return self._bodies[id(value)][1]
        number = self._numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return [self.own, number, self.describe(value, number)]

    def resolve(self, body: list[Any]) -> Any:
        """The object of a reference, or the proxy for it."""
        owner, number, about = body
        if owner == self.own:
            return self.objects[number]
        if owner == "type":
            return PLAIN_TYPES[number]
        if (value := self._proxies.get(number)) is None:
            value = self._proxies[number] = self.borrow(number, about)
        self._bodies[id(value)] = value, body
        return value

    def resolve_argument(self, body: list[Any]) -> Any:
        """The same for what the other process hands to an own object."""
        return self.resolve(body)

    def describe(self, value: Any, number: int) -> Any:
        """What the other process needs to know of an own object."""

    def borrow(self, number: int, about: Any) -> Any:
        """A proxy for an object of the other process."""
        raise NotImplementedError


class Proxy:
    """Forwards what is done with it to the process of its object."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._peer.use("call", self._number, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return self._peer.use("getattr", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.use("setattr", self._number, name, value)


def forward(name: str) -> Callable[..., Any]:
    """A method that has an action done."""
    return lambda self, *arguments: self._peer.use(name, self._number, *arguments)


def _build_exception(reply: dict[str, Any]) -> Exception:
    kind = getattr(builtins, str(reply["raised"]), None)
    text = str(reply.get("text"))
    # as in a generator (PEP 479): `all(map(f, xs))` would read it as the end of xs
    ends = kind is StopIteration
    if ends or not (isinstance(kind, type) and issubclass(kind, Exception)):
        return RuntimeError(f"{reply['raised']}: {text}")
    try:
        return kind(text)
    except TypeError:
        return RuntimeError(f"{kind.__name__}: {text}")
