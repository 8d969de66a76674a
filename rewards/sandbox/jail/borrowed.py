"""Proxies in the candidate for objects of the tests; each forwards its use to the tester.

The proxy of a function is a function, that of an iterator a generator, and that of any other object
forwards operators and attributes.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

from .lending import OPERATIONS
from .library import build_exception, find_named, rebuild
from .transfer import apply_changes, receive, send


class Borrower:
    """Keeps the proxies and forwards their use to the tester.

    Args:
        channel: the connection to the tester.
        serve: answers what the tester asks for before it has an answer itself.
        encoded: JSON of a value.
        decoded: the value of JSON.
    """

    def __init__(
        self,
        channel: int,
        serve: Callable[[dict[str, Any]], dict[str, Any]],
        encoded: Callable[[Any], Any],
        decoded: Callable[[Any], Any],
    ) -> None:
        self.channel, self.serve, self.encode, self.decode = channel, serve, encoded, decoded
        self._kept: dict[int, Any] = {}
        self._bodies: dict[int, tuple[Any, list[Any]]] = {}
        self._turn = threading.RLock()

    def body_of(self, value: Any) -> list[Any] | None:
        """The reference to an object of the tests that is sent back; None for anything else."""
        return self._bodies.get(id(value), (None, None))[1]

    def own(self, body: list[Any]) -> Any:
        """The candidate's copy or proxy of an object; the same proxy for the same object."""
        number, kind, about = body
        if kind == "built":
            value = rebuild(*map(self.decode, about))
        elif number in self._kept:
            return self._kept[number]
        else:
            make = {"named": self._look_up, "function": self._function, "iterator": self._iterator}
            value = self._kept[number] = make.get(kind, self._object)(number, about)
        self._bodies[id(value)] = value, body
        return value

    def ask(self, action: str, number: int, **content: Any) -> dict[str, Any]:
        """Have the tester use an object, and return its answer.

        Raises:
            Exception: what the code of the tests raised.
        """
        with self._turn:
            send(self.channel, {"ask": action, "object": number, **content})
            while "do" in (answer := receive(self.channel)):
                send(self.channel, self.serve(answer))
        if "raised" in answer:
            raise build_exception(answer)
        return answer

    def call(self, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call a function of the tests; containers that it modifies change here too."""
        sent = [self.encode(argument) for argument in arguments]
        kwargs = {name: self.encode(value) for name, value in named.items()}
        answer = self.ask("call", number, arguments=sent, named=kwargs)
        apply_changes(arguments, answer.get("changed"), self.decode)
        return self.decode(answer["value"])

    def operate(self, number: int, name: str, *arguments: Any) -> Any:
        """Apply an operator to an object of the tests."""
        sent = [self.encode(argument) for argument in arguments]
        return self.decode(self.ask("operate", number, name=name, arguments=sent)["value"])

    def _look_up(self, _: int, place: list[str]) -> Any:
        return find_named(*place)

    def _function(self, number: int, name: str) -> Callable[..., Any]:
        def lent(*arguments: Any, **named: Any) -> Any:
            return self.call(number, arguments, named)

        lent.__name__ = lent.__qualname__ = name
        return lent

    def _iterator(self, number: int, _: str) -> Iterator[Any]:
        while "ended" not in (answer := self.ask("next", number)):
            yield self.decode(answer["value"])

    def _object(self, number: int, name: str) -> Any:
        return type(name, (Borrowed,), {"__slots__": ()})(self, number)


class Borrowed:
    """A proxy for an object of the tests."""

    __slots__ = ("_borrower", "_number")

    def __init__(self, borrower: Borrower, number: int) -> None:
        object.__setattr__(self, "_borrower", borrower)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        answer = self._borrower.ask("getattr", self._number, name=name)
        return self._borrower.decode(answer["value"])

    def __setattr__(self, name: str, value: Any) -> None:
        body = self._borrower.encode(value)
        self._borrower.ask("setattr", self._number, name=name, value=body)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._borrower.call(self._number, arguments, named)

    def __next__(self) -> Any:
        answer = self._borrower.ask("next", self._number)
        if "ended" in answer:
            raise StopIteration
        return self._borrower.decode(answer["value"])


def _operator(name: str) -> Callable[..., Any]:
    def operate(self: Borrowed, *arguments: Any) -> Any:
        return self._borrower.operate(self._number, name, *arguments)

    return operate


for _name in OPERATIONS:
    setattr(Borrowed, f"__{_name}__", _operator(_name))
