"""A tester's side of the connection to its candidate, and what it lends.

Objects of Python's library are sent as pickled copies. Others are lent: a candidate may call a lent
function, take the next item of a lent iterator, and use operators and public attributes of an
object whose class the tests define. Attributes of functions, generators and library objects are
refused, because they lead to the tests themselves.
"""

import base64
import importlib
import io
import os
import pickle
import select
import socket
import sys
import time
import types
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from .candidate import become_candidate
from .limits import JobLimits
from .peer import PLAIN_TYPES, Peer, Proxy, forward
from .values import MAX_DEPTH
from .wire import Gone, receive, send

TESTS = "tests"
"""Module name of the tests, and so of the classes they define."""
_FOR = {"call": ("function", "object"), "next": ("iterator", "object")}
"""Kinds of lent objects on which an action is allowed; objects alone for all others."""


class Session(Peer):
    """Starts a candidate and talks to it.

    Attributes:
        gone: why the candidate has ended; empty while it runs.
    """

    own, depth = "tester", 2 * MAX_DEPTH

    def __init__(self, limits: JobLimits, null: int) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours.detach())
        self.limits, self.limit = limits, limits.output_kb << 10
        self.gone = ""
        self._kinds: dict[int, str] = {}
        self.stdin, self.stdout = os.memfd_create("stdin"), os.memfd_create("stdout")
        self.pid = os.fork()
        if self.pid == 0:
            become_candidate(limits, self.stdin, self.stdout, null, theirs.fileno())
        theirs.close()
        self.ended = os.pidfd_open(self.pid)
        if (answer := receive(self.channel, deadline=time.monotonic() + 30)) != "ready":
            raise Gone(str(answer))

    def start_test(self) -> None:
        """Start the time limit of one test."""
        self.deadline = time.monotonic() + self.limits.timeout

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """The candidate's answer.

        Raises:
            Gone: there is none, now or before.
        """
        if self.gone:
            raise Gone(self.gone)
        try:
            return super().exchange(message)
        except Gone as error:
            self.gone = self.gone or str(error)
            raise

    def decode(self, body: Any) -> Any:
        """The value of JSON from the candidate."""
        try:
            return super().decode(body)
        except Exception as error:
            self.gone = f"a value that cannot be read: {error}"
            raise Gone(self.gone) from error

    def perform(self, action: str, number: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Use a lent object as far as a candidate may."""
        value, kind = self.objects[number], self._kinds[number]
        classes = _classes(value)
        name = arguments[0] if action in ("getattr", "setattr") else ""
        if kind not in _FOR.get(action, ("object",)) or not (classes or action in _FOR):
            raise TypeError(f"a {type(value).__name__} of the tests has no {action}")
        holders = [*map(vars, (*classes, Enum)), getattr(value, "__dict__", {})]
        is_there = action != "getattr" or any(name in holder for holder in holders)
        if name.startswith("_") or not is_there:
            raise AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}")
        return super().perform(action, number, arguments, named)

    def resolve_argument(self, body: list[Any]) -> Any:
        """What the candidate passes to code of the tests. Functions of the library are refused,
        because that code would call them in this process."""
        value = self.resolve(body)
        if body[0] == self.own and self._kinds[body[1]] == "copy":
            is_plain = value in PLAIN_TYPES.values()
            if (callable(value) or isinstance(value, types.ModuleType)) and not is_plain:
                raise ValueError(f"{value!r} does not come back into the tests")
        return value

    def describe(self, value: Any, number: int) -> list[str]:
        """The kind of an object, and its copy or its name."""
        kind, word = _kind(value), str(getattr(value, "__name__", type(value).__name__))
        if kind == "object":
            word = type(value).__name__
        elif not kind:
            kind = "copy"
            try:
                word = _copy(value, self.refer)
            except Exception:  # classes that cannot be copied raise various errors
                kind = "function" if callable(value) else "object"
        self._kinds[number] = kind
        return [kind, word]

    def borrow(self, number: int, about: Any) -> Any:
        """The candidate's object as tests see it."""
        return Remote(self, int(number))

    def run_script(self, setup: str, code: str, text: str) -> tuple[str, str]:
        """Run a program: its output, and why the output is not valid (empty if it is)."""
        os.write(self.stdin, text.encode("utf-8", "surrogatepass"))
        os.lseek(self.stdin, 0, os.SEEK_SET)
        send(self.channel, {"script": True, "setup": setup, "code": code})
        if not select.select([self.ended], [], [], self.limits.timeout)[0]:
            return "", "out of time"
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        printed = os.pread(self.stdout, self.limit, 0).decode("utf-8", "replace")
        return printed, f"exit status {status}" if status else ""


class Remote(Proxy):
    """An object of the candidate that is not a plain value.

    Tests can call it, use its attributes and items, and pass it back. It has no truth value and no
    equality, because the candidate controls both.
    """

    __slots__ = ()
    __getitem__, __len__ = forward("getitem"), forward("len")

    def __iter__(self) -> Any:
        return iter(self._peer.use("list", self._number))

    def _proves_nothing(self, *_: Any) -> Any:
        raise TypeError("an object of the candidate has no value that a test could compare")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _proves_nothing
    __hash__ = _proves_nothing


class _Copier(pickle.Pickler):
    """Copies objects of Python's library, with references to what they hold of the tests."""

    def __init__(self, file: io.BytesIO, refer: Callable[[Any], list[Any]]) -> None:
        super().__init__(file)
        self._refer = refer

    def persistent_id(self, value: Any) -> list[Any] | None:
        return self._refer(value) if _kind(value) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, _VIEWS):
            return getattr(dict, type(value).__name__[5:]), (dict(value.mapping),)
        return NotImplemented


_VIEWS = type({}.keys()), type({}.values()), type({}.items())


def _copy(value: Any, refer: Callable[[Any], list[Any]]) -> str:
    file = io.BytesIO()
    _Copier(file, refer).dump(value)
    return base64.b64encode(file.getvalue()).decode()


def _kind(value: Any) -> str:
    """The kind of an object that is lent; empty for one that is copied, if that is possible."""
    if isinstance(value, Proxy) or _classes(value):
        return "object"
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
        return "iterator"
    bound = getattr(value, "__self__", None) if isinstance(value, _METHODS) else None
    if bound is not None and not isinstance(bound, types.ModuleType):
        return "function"
    is_made = isinstance(value, types.FunctionType | type)
    return "" if not is_made or _is_library(value) else "function"


_METHODS = (types.MethodType, types.BuiltinFunctionType)


def _is_library(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in sys.stdlib_module_names


def _classes(value: Any) -> list[type]:
    """The classes of an object that the tests define; none for a class itself."""
    if isinstance(value, type):
        return []
    return [cls for cls in type(value).__mro__ if cls.__module__ == TESTS]
