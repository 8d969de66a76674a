"""The process that runs a candidate's code and answers its tester with values.

Once the code is loaded, the candidate controls everything in this process. Its messages therefore
prove nothing except "this call returned that value".
"""

import ast
import contextlib
import os
import random
import sys
from typing import Any, NoReturn

from . import kernel
from .borrowed import Borrower
from .library import PLAIN_TYPES
from .limits import JobLimits, restrain_candidate
from .transfer import Unsendable, decode, encode, find_changes, receive, send

CHANNEL = 3


def become_candidate(limits: JobLimits, channel: int, stdin: int, stdout: int) -> NoReturn:
    """Turn a newly forked process into a candidate; it sends `ready` and serves its tester.

    Args:
        limits: resources of the candidate.
        channel: its end of the connection to the tester.
        stdin: standard input of a script.
        stdout: standard output of a script.
    """
    status = 1
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        # Move them away from 0 to 3 first, then to their places.
        moved = [os.dup2(fd, 100 + n, False) for n, fd in enumerate((stdin, stdout, null, channel))]
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
        _scratch_folder(limits)
        restrain_candidate(limits)
    except OSError as error:
        return str(error)
    return "ready"


def _scratch_folder(limits: JobLimits) -> None:
    if limits.level != "full":
        os.chdir("/")
        return
    kernel.call("unshare", kernel.CLONE_NEWNS)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    size = f"size={limits.output_kb}k,nr_inodes=256,mode=700"
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, size)
    os.chdir("/tmp")


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
    world = _World(job["setup"])
    send(CHANNEL, world.attempt("load", job))
    while True:
        request = receive(CHANNEL)
        send(CHANNEL, world.attempt(request["do"], request))


def _run_setup(setup: str, name: str) -> dict[str, Any]:
    """The names that the setup defines without the candidate; the tester defines all."""
    names = {"__name__": name}
    for statement in ast.parse(setup).body:
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([statement], []), "<setup>", "exec"), names)
    return names


class _World:
    """The names of the candidate and the objects that its tester refers to."""

    def __init__(self, setup: str) -> None:
        self.names = _run_setup(setup, "candidate")
        self.objects: list[Any] = []
        self.borrower = Borrower(
            CHANNEL, lambda asked: self.attempt(asked["do"], asked), self._encode, self._decode
        )

    def attempt(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a request of the tester; the reply holds the value or the exception."""
        try:
            return getattr(self, f"do_{action}")(request)
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)[:200]}

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        exec(compile(request["code"], "<candidate>", "exec"), self.names)
        return {"value": None}

    def do_name(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["name"] not in self.names:
            raise NameError(f"name {request['name']!r} is not defined")
        return self._value(self.names[request["name"]])

    def do_call(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments = [self._decode(body) for body in request["arguments"]]
        named = {name: self._decode(body) for name, body in request["named"].items()}
        reply = self._value(self.objects[request["object"]](*arguments, **named))
        reply["changed"] = find_changes(request["arguments"], arguments, self._encode)
        return reply

    def do_getattr(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(getattr(self.objects[request["object"]], request["name"]))

    def do_setattr(self, request: dict[str, Any]) -> dict[str, Any]:
        value = self._decode(request["value"])
        setattr(self.objects[request["object"]], request["name"], value)
        return {"value": None}

    def do_getitem(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(self.objects[request["object"]][self._decode(request["key"])])

    def do_length(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(len(self.objects[request["object"]]))

    def do_items(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._value(list(self.objects[request["object"]]))

    def _value(self, value: Any) -> dict[str, Any]:
        return {"value": self._encode(value)}

    def _encode(self, value: Any) -> Any:
        return encode(value, self._reference)

    def _decode(self, body: Any) -> Any:
        return decode(body, self._resolve)

    def _reference(self, value: Any) -> list[Any]:
        if (body := self.borrower.body_of(value)) is not None:
            return ["handed", body]
        if isinstance(value, type) and PLAIN_TYPES.get(value.__name__) is value:
            return ["type", value.__name__]
        if len(self.objects) > 100_000:
            raise Unsendable("too many objects")
        self.objects.append(value)
        return ["reference", len(self.objects) - 1]

    def _resolve(self, tag: str, content: Any) -> Any:
        return self.objects[content] if tag == "reference" else self.borrower.own(content)
