"""A tester's side of the connection to its candidate."""

import os
import select
import signal
import socket
import time
from typing import Any

from . import kernel
from .candidate import become_candidate
from .lending import Lender
from .library import PLAIN_TYPES, build_exception
from .limits import JobLimits
from .transfer import (
    MAX_DEPTH,
    WireError,
    apply_changes,
    decode,
    encode,
    find_changes,
    receive,
    send,
)


class Gone(BaseException):
    """The candidate ended, took too long or broke the protocol; `except Exception` does not catch
    it."""


class Session:
    """Starts a candidate and talks to it.

    Attributes:
        gone: why the candidate has ended; empty while it runs.
    """

    def __init__(self, limits: JobLimits) -> None:
        self.limits = limits
        self.gone = ""
        self.lender = Lender()
        self.deadline = time.monotonic() + 30
        ours, theirs = socket.socketpair()
        self.stdin = os.memfd_create("stdin")
        self.stdout, stdout = os.pipe()
        if limits.level == "full":
            kernel.call("unshare", kernel.CLONE_NEWPID)
        self.pid = os.fork()
        if self.pid == 0:
            become_candidate(limits, theirs.fileno(), self.stdin, stdout)
        theirs.close()
        os.close(stdout)
        self.ended = os.pidfd_open(self.pid)
        self.channel = ours.detach()
        if (answer := self._receive()) != "ready":
            raise Gone(str(answer))

    def start_test(self) -> None:
        """Start the time limit of one test."""
        self.deadline = time.monotonic() + self.limits.timeout

    def ask(self, action: str, **request: Any) -> Any:
        """Send the candidate a request.

        Returns:
            The value in its answer; a `Remote` if that is not a plain value.

        Raises:
            Gone: it does not answer.
            Exception: what the candidate's code raised, or `RuntimeError` for an unknown class and
                for `StopIteration`.
        """
        reply = self._exchange({"do": action, **request})
        if "raised" in reply:
            raise build_exception(reply)
        return self.decode(reply.get("value"))

    def call(self, number: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Call an object of the candidate; containers that it modifies change here too."""
        sent = [self.encode(argument) for argument in arguments]
        kwargs = {name: self.encode(value) for name, value in named.items()}
        reply = self._exchange({"do": "call", "object": number, "arguments": sent, "named": kwargs})
        if "raised" in reply:
            raise build_exception(reply)
        apply_changes(arguments, reply.get("changed"), self.decode)
        return self.decode(reply.get("value"))

    def encode(self, value: Any) -> Any:
        """JSON of a value for the candidate."""
        return encode(value, self._reference, 2 * MAX_DEPTH)

    def decode(self, body: Any) -> Any:
        """The value of JSON from the candidate."""
        try:
            return decode(body, self._resolve)
        except WireError as error:
            self._lost(error)

    def run_script(self, setup: str, code: str, text: str) -> tuple[str, str]:
        """Run a program: its output, and why the output is not valid (empty if it is)."""
        os.write(self.stdin, text.encode("utf-8", "surrogatepass"))
        os.lseek(self.stdin, 0, os.SEEK_SET)
        send(self.channel, {"script": True, "setup": setup, "code": code})
        self.start_test()
        printed, problem = b"", ""
        limit = self.limits.output_kb << 10
        while not problem and (part := self._read_output()) != b"":
            problem = "out of time" if part is None else ""
            printed += part or b""
            if len(printed) > limit:
                problem = f"more than {limit >> 10} kB of output"
        return printed[:limit].decode("utf-8", "replace"), problem or self._exit_problem()

    def close(self) -> None:
        """End the candidate and all it started."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _read_output(self) -> bytes | None:
        left = max(self.deadline - time.monotonic(), 0)
        ready = select.select([self.stdout], [], [], left)[0]
        return os.read(self.stdout, 1 << 16) if ready else None

    def _exit_problem(self) -> str:
        left = max(self.deadline - time.monotonic(), 0)
        if not select.select([self.ended], [], [], left)[0]:
            return "out of time"
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, os.WNOHANG)[1])
        # The process has ended; its id must not be killed any more.
        self.close = lambda: None
        return f"exit status {status}" if status else ""

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request; requests of the candidate until then are answered."""
        if self.gone:
            raise Gone(self.gone)
        self._send(request)
        while True:
            reply = self._receive()
            if not isinstance(reply, dict):
                self._lost(WireError("an answer that is not one"))
            if "ask" not in reply:
                return reply
            if time.monotonic() > self.deadline:
                self._lost(WireError("out of time"))
            self._send(self._answer(reply))

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request of the candidate: the result of a method of `Lender`."""
        try:
            return getattr(self, f"_lend_{asked['ask']}")(asked, int(asked["object"]))
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)[:200]}

    def _lend_call(self, asked: dict[str, Any], number: int) -> dict[str, Any]:
        arguments = [self._for_tests(body) for body in asked["arguments"]]
        named = {str(name): self._for_tests(body) for name, body in asked["named"].items()}
        reply = {"value": self.encode(self.lender.call(number, arguments, named))}
        return {**reply, "changed": find_changes(asked["arguments"], arguments, self.encode)}

    def _lend_next(self, _: dict[str, Any], number: int) -> dict[str, Any]:
        try:
            return {"value": self.encode(self.lender.next(number))}
        except StopIteration:
            return {"ended": True}

    def _lend_operate(self, asked: dict[str, Any], number: int) -> dict[str, Any]:
        arguments = [self._for_tests(body) for body in asked["arguments"]]
        return {"value": self.encode(self.lender.operate(number, asked["name"], arguments))}

    def _lend_getattr(self, asked: dict[str, Any], number: int) -> dict[str, Any]:
        return {"value": self.encode(self.lender.getattr(number, str(asked["name"])))}

    def _lend_setattr(self, asked: dict[str, Any], number: int) -> dict[str, Any]:
        self.lender.setattr(number, str(asked["name"]), self._for_tests(asked["value"]))
        return {"value": None}

    def _for_tests(self, body: Any) -> Any:
        """An argument that the candidate passes to code of the tests. Functions of the library are
        refused, because that code would call them in this process."""
        return decode(body, self._harmless)

    def _harmless(self, tag: str, content: Any) -> Any:
        if tag == "handed" and self.lender.kinds[int(content[0])] == "named":
            value = self.lender.objects[int(content[0])]
            if value not in PLAIN_TYPES.values():
                raise ValueError(f"{value!r} does not come back into the tests")
        return self._resolve(tag, content)

    def _reference(self, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            return ["reference", value._number]
        return ["handed", self.lender.hand_over(value, self.encode)]

    def _resolve(self, tag: str, content: Any) -> Any:
        if tag == "reference":
            return Remote(self, int(content))
        return PLAIN_TYPES[content] if tag == "type" else self.lender.objects[int(content[0])]

    def _send(self, message: dict[str, Any]) -> None:
        try:
            send(self.channel, message)
        except WireError as error:
            self._lost(error)

    def _receive(self) -> Any:
        try:
            return receive(self.channel, self.limits.output_kb << 10, self.deadline)
        except WireError as error:
            self._lost(error)

    def _lost(self, error: WireError) -> Any:
        self.gone = str(error)
        raise Gone(self.gone) from error


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
        return self._session.call(self._number, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return self._session.ask("getattr", object=self._number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        body = self._session.encode(value)
        self._session.ask("setattr", object=self._number, name=name, value=body)

    def __getitem__(self, key: Any) -> Any:
        return self._session.ask("getitem", object=self._number, key=self._session.encode(key))

    def __len__(self) -> int:
        return self._session.ask("length", object=self._number)

    def __iter__(self) -> Any:
        return iter(self._session.ask("items", object=self._number))

    def _proves_nothing(self, *_: Any) -> Any:
        raise TypeError("an object of the candidate has no value that a test could compare")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _proves_nothing
    __hash__ = _proves_nothing
