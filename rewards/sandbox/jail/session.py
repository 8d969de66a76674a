"""A tester's side of the connection to its candidate, and what it lends.

Objects of Python's library are sent as pickled copies. Functions and iterators of the tests are
lent: a candidate may call the one and take the next item of the other. Nothing else can be done
with them, because their attributes lead to the tests themselves.
"""

import base64
import importlib
import io
import itertools
import os
import pickle
import signal
import socket
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from .candidate import become_candidate
from .limits import JobLimits
from .peer import MAX_DEPTH, Peer
from .wire import Gone, receive, send

TESTS = "tests"
"""Module name of the tests, and so of the classes they define."""
_METHODS = (types.MethodType, types.BuiltinFunctionType)
_VIEWS = type({}.keys()), type({}.values()), type({}.items())


class Session(Peer):
    """Starts a candidate and talks to it.

    Attributes:
        gone: why the candidate has ended; empty while it runs.
        unfit: what the tests have that cannot be handed over; empty if there is nothing.
    """

    own, deepest = "tester", 2 * MAX_DEPTH

    def __init__(self, limits: JobLimits, null: int) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours.detach())
        self.limits, self.limit = limits, limits.output_kb << 10
        self.gone = self.unfit = ""
        self._kinds: dict[int, str] = {}
        self.stdin, self.stdout = os.memfd_create("stdin"), os.memfd_create("stdout")
        self.pid = os.fork()
        if self.pid == 0:
            become_candidate(limits, self.stdin, self.stdout, null, theirs.fileno())
        theirs.close()
        if (answer := receive(self.channel)) != "ready":
            raise Gone(str(answer))

    def start_clock(self) -> None:
        """Start the time limit of one test, at which the kernel ends this process, whatever the
        values of the candidate make the test do."""
        signal.setitimer(signal.ITIMER_REAL, self.limits.timeout)

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

    def decode(self, body: Any, is_argument: bool = False) -> Any:
        """The value of JSON from the candidate."""
        if is_argument:
            return super().decode(body, is_argument)
        try:
            return super().decode(body)
        except Exception as error:
            self.gone = f"a value that cannot be read: {error}"
            raise Gone(self.gone) from error

    def resolve(self, owner: str, number: int, about: Any, is_argument: bool = False) -> Any:
        """An object or a proxy. A function of the library is refused as an argument of one of the
        tests, which would call it in this process."""
        value = super().resolve(owner, number, about)
        is_copy = owner == self.own and self._kinds[number] == "copy"
        if is_copy and is_argument and (callable(value) or isinstance(value, types.ModuleType)):
            raise ValueError(f"{value!r} does not come back into the tests")
        return value

    def perform(self, action: str, number: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Use what is lent as far as a candidate may."""
        value, kind = self.objects[number], self._kinds[number]
        if (action, kind) == ("call", "function"):
            return value(*arguments, **named)
        if (action, kind) == ("next", "iterator"):
            return list(itertools.islice(value, 1))
        raise TypeError(f"a {type(value).__name__} of the tests has no {action}")

    def refer(self, value: Any) -> list[Any]:
        """The reference to an object of either process."""
        if isinstance(value, Remote):
            return ["candidate", value._number, None]
        return super().refer(value)

    def describe(self, value: Any, number: int) -> list[str]:
        """How an object is handed over, and its name or its copy."""
        kind, word = _kind(value), str(getattr(value, "__name__", ""))
        kinds = value.__mro__ if isinstance(value, type) else type(value).__mro__
        if any(each.__module__ == TESTS for each in kinds):
            what = word or f"an object of {type(value).__name__}"
            self.unfit = f"the tests hand {what}, of a class that they define, to the program"
            raise TypeError(self.unfit)
        if not kind:
            kind, file = "copy", io.BytesIO()
            _Copier(self, file).dump(value)
            word = base64.b64encode(file.getvalue()).decode()
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
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        printed = os.pread(self.stdout, self.limit, 0).decode("utf-8", "replace")
        return printed, f"exit status {status}" if status else ""


def _forward(action: str) -> Callable[..., Any]:
    return lambda self, *arguments: self._session.use(action, self._number, *arguments)


class Remote:
    """An object of the candidate that is not a plain value.

    Tests can call it, use its attributes and items, and pass it back. It has no truth value and no
    equality, because the candidate controls both.
    """

    __slots__ = ("_number", "_session")

    def __init__(self, session: Session, number: int) -> None:
        object.__setattr__(self, "_session", session)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._session.use("call", self._number, *arguments, **named)

    __getattr__, __setattr__ = _forward("getattr"), _forward("setattr")
    __getitem__, __len__ = _forward("getitem"), _forward("len")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._session.use("list", self._number))

    def _proves_nothing(self, *_: Any) -> Any:
        raise TypeError("an object of the candidate has no value that a test could compare")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _proves_nothing
    __hash__ = _proves_nothing


class _Copier(pickle.Pickler):
    """Copies objects of Python's library, with references to what they hold of the tests."""

    def __init__(self, session: Session, file: io.BytesIO) -> None:
        super().__init__(file)
        self._session = session

    def persistent_id(self, value: Any) -> list[Any] | None:
        is_lent = isinstance(value, Remote) or _kind(value)
        return self._session.refer(value) if is_lent else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, _VIEWS):
            return getattr(dict, type(value).__name__[5:]), (dict(value.mapping),)
        return NotImplemented


def _kind(value: Any) -> str:
    """The kind of an object that is lent; empty for one that is copied."""
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
        return "iterator"
    bound = getattr(value, "__self__", None) if isinstance(value, _METHODS) else None
    if bound is not None and not isinstance(bound, types.ModuleType):
        return "function"
    if not isinstance(value, types.FunctionType | type):
        return ""
    is_library = str(value.__module__).partition(".")[0] in sys.stdlib_module_names
    return "" if is_library else "function"
