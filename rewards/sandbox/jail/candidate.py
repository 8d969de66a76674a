"""The process that runs a candidate's code and answers its tester with values.

Once the code is loaded, the candidate controls everything in this process. Its messages therefore
prove nothing except "this call returned that value".
"""

import ast
import base64
import contextlib
import io
import operator
import os
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .limits import JobLimits, restrain_candidate
from .wire import MUTABLE, encode, receive, send

CHANNEL = 3
_ACTIONS: dict[str, Callable[..., Any]] = {
    **{"getattr": getattr, "setattr": setattr, "getitem": operator.getitem},
    **{"len": len, "list": list, "call": lambda f, *arguments, **named: f(*arguments, **named)},
}
"""What a tester may have done with an object of the candidate."""


def become_candidate(limits: JobLimits, *streams: int) -> NoReturn:
    """Turn a newly forked process into a candidate; it sends `ready` and serves its tester.
    `streams`: input and output of a script, what becomes standard error, and the channel."""
    status = 1
    try:
        os.setsid()
        # Move them away from 0 to 3 first, then to their places.
        moved = [os.dup2(fd, 100 + n, False) for n, fd in enumerate(streams)]
        for place, fd in enumerate(moved):
            os.dup2(fd, place, place < CHANNEL)
        os.closerange(CHANNEL + 1, 1 << 16)
        random.seed()
        send(CHANNEL, _restrain(limits))
        _serve()
        status = 0
    except SystemExit as end:
        # Only a script can end like this; a candidate under test has failed.
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        os._exit(status & 0xFF)


def _restrain(limits: JobLimits) -> str:
    try:
        restrain_candidate(limits)
    except OSError as error:
        return str(error)
    return "ready"


def _serve() -> None:
    job = receive(CHANNEL)
    if job["script"]:
        try:
            names = _run_setup(job["setup"], "__main__")
            exec(compile(job["code"], "<candidate>", "exec"), names)
        finally:
            sys.stdout.flush()
        return
    for fd in (0, 1):
        os.dup2(2, fd)
    program, reply = _Program(job["setup"]), {}
    while True:
        send(CHANNEL, reply)
        reply = program.answer(receive(CHANNEL))


def _run_setup(setup: str, name: str) -> dict[str, Any]:
    """The names that the setup defines without the candidate; the tester defines all."""
    names = {"__name__": name}
    for statement in ast.parse(setup).body:
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([statement], []), "<setup>", "exec"), names)
    return names


class _Program:
    """The names and objects of the candidate."""

    def __init__(self, setup: str) -> None:
        self.names = _run_setup(setup, "candidate")
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the tester asks for: the value, the arguments that changed, or the exception."""
        try:
            reader = pickle.Unpickler(io.BytesIO(base64.b64decode(request["data"])))
            reader.persistent_load = self.objects.__getitem__
            arguments, named = reader.load()
            mutable = [n for n, each in enumerate(arguments) if isinstance(each, MUTABLE)]
            before = {n: encode(arguments[n], self._number) for n in mutable}
            value = self._perform(request["do"], request["object"], arguments, named)
            after = {n: encode(arguments[n], self._number) for n in mutable}
            changed = {n: now for n, now in after.items() if now != before[n]}
            return {"value": encode(value, self._number), "changed": changed}
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)[:200]}

    def _perform(self, action: str, number: int, arguments: Any, named: dict[str, Any]) -> Any:
        if action == "load":
            return exec(compile(arguments[0], "<candidate>", "exec"), self.names)
        if action == "name" and arguments[0] not in self.names:
            raise NameError(f"name {arguments[0]!r} is not defined")
        if action == "name":
            return self.names[arguments[0]]
        return _ACTIONS[action](self.objects[number], *arguments, **named)

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return number
