"""A tester's connection to its candidate.

What a test hands over is sent as a pickled copy, what the candidate answers is JSON (wire.py).
Nothing is handed over whose copy would behave differently, and no code of the tests.
"""

import base64
import builtins
import contextlib
import io
import os
import pickle
import signal
import socket
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from .candidate import become_candidate
from .limits import JobLimits
from .wire import MUTABLE, Gone, decode, receive, send

TESTS = "tests"
"""Module name of the tests, and so of the functions and classes they define."""
_PLAIN = {bool, int, float, str, bytes, list, tuple, dict, set, frozenset, type(None)}
_METHODS = (types.MethodType, types.BuiltinFunctionType)
_VIEWS = type({}.keys()), type({}.values()), type({}.items())


class Session:
    """Starts a candidate and talks to it; `gone` says why the candidate has ended, and `unfit` why
    something of the tests cannot be handed over. Both are empty at first."""

    def __init__(self, limits: JobLimits, null: int) -> None:
        ours, theirs = socket.socketpair()
        self.channel, self.limits = ours.detach(), limits
        self.largest = limits.output_kb << 10
        self.gone = self.unfit = ""
        self._turn = threading.Lock()
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

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The candidate's answer. Raises Gone: there is none, now or before."""
        if self.gone:
            raise Gone(self.gone)
        try:
            send(self.channel, message)
            reply = receive(self.channel, self.largest)
            if not isinstance(reply, dict):
                raise Gone("an answer that is not one")
        except Gone as error:
            self.gone = str(error)
            raise
        return reply

    def use(self, action: str, number: int, /, *arguments: Any, **named: Any) -> Any:
        """Have an object of the candidate used; arguments that it modifies change here too. Raises
        Gone: the candidate does not answer, or with what cannot be read. Raises TypeError: an
        argument cannot be handed over. Raises Exception: what the code there raised, or
        `RuntimeError` for an unknown class and for `StopIteration`."""
        data = self._copy((arguments, named))
        with self._turn:
            reply = self.ask({"do": action, "object": number, "data": data})
        if "raised" in reply:
            raise _build_exception(str(reply["raised"]), str(reply.get("text")))
        try:
            for n, body in dict(reply.get("changed") or {}).items():
                old, new = arguments[int(n)], self._decode(body)
                if any(isinstance(old, kind) and isinstance(new, kind) for kind in MUTABLE):
                    old.clear()
                    getattr(old, "extend" if hasattr(old, "extend") else "update")(new)
            return self._decode(reply.get("value"))
        except Exception as error:
            self.gone = f"a value that cannot be read: {error}"
            raise Gone(self.gone) from error

    def run_script(self, setup: str, code: str, text: str) -> tuple[str, str]:
        """Run a program: its output, and why the output is not valid (empty if it is)."""
        os.write(self.stdin, text.encode("utf-8", "surrogatepass"))
        os.lseek(self.stdin, 0, os.SEEK_SET)
        send(self.channel, {"script": True, "setup": setup, "code": code})
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        printed = os.pread(self.stdout, self.largest, 0).decode("utf-8", "replace")
        return printed, f"exit status {status}" if status else ""

    def _copy(self, value: Any) -> str:
        file = io.BytesIO()
        try:
            _Copier(file).dump(value)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self.unfit = f"the tests hand to the program what cannot be copied: {error}"
            raise TypeError(self.unfit) from error
        return base64.b64encode(file.getvalue()).decode()

    def _decode(self, body: Any) -> Any:
        return decode(body, lambda number: Remote(self, number))


class _Copier(pickle.Pickler):
    """Copies values and objects of Python's library; an object of the candidate is its number."""

    def persistent_id(self, value: Any) -> int | None:
        if type(value) in _PLAIN:
            return None
        if type(value) is Remote:
            return value._number
        if getattr(value, "__module__", "") == TESTS:
            raise pickle.PicklingError("a function, or an object of a class that they define")
        if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
            raise pickle.PicklingError("an iterator, which would not advance with its copy")
        owner = value.__self__ if isinstance(value, _METHODS) else None
        if not isinstance(owner, types.ModuleType | type | None):
            raise pickle.PicklingError("a method, whose object would not change with its copy")
        return None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, _VIEWS):
            return getattr(dict, type(value).__name__[5:]), (dict(value.mapping),)
        return NotImplemented


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


def _build_exception(name: str, text: str) -> Exception:
    kind: Any = getattr(builtins, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, Exception)
    # as in a generator (PEP 479): `all(map(f, xs))` would read StopIteration as the end of xs
    if is_known and kind is not StopIteration:
        with contextlib.suppress(TypeError):
            return kind(text)
    return RuntimeError(f"{name}: {text}")
