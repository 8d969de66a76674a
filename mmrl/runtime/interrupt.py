"""Ctrl-C as a request to stop at the next point that leaves no partial state, and SIGUSR1 as one
for a checkpoint.

    with StopRequest(agreed=…):
        with leave_together():  # a phase that can be abandoned
            for part in …:
                check()           # raises Interrupted once a stop is requested

All processes leave the same phase or none, because what follows synchronises them. Each process
leaves a phase without communication by itself and waits at its end. Where every part communicates
(`in_step`), the processes agree at each `check`, so all must make the same number of calls.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import FrameType

import psutil

logger = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAVE_SIGNAL = signal.SIGUSR1
"""Asks for a checkpoint after the current step, as schedulers do before they pre-empt a run."""

SAME_REQUEST = 0.3
"""Seconds in which further signals count as the first: `timeout` and others send several."""

SAME_REQUEST_LAUNCHED = 2.0
"""The same under a launcher, which forwards the Ctrl-C that the terminal sends to all."""


class Interrupted(KeyboardInterrupt):
    """A phase was abandoned because a stop was requested."""


class StopRequest:
    """While open, the first Ctrl-C (or SIGTERM) sets `requested`, a later one ends the process, and
    SIGUSR1 sets `save`.

    Opened when the model is loaded: before that there is nothing to save. Python runs signal
    handlers between two operations of the main thread, and a backward pass is one operation; so a
    thread reads the signals and can end the process and its children at any time.

    Args:
        agreed: whether a flag is set on any process; all call it.
    """

    def __init__(self, agreed: Callable[[bool], bool] = bool) -> None:
        self.requested, self.save, self.agreed = False, False, agreed
        self.in_step: bool | None = None  # of the current phase; None outside

    def __enter__(self) -> StopRequest:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        self._previous[SAVE_SIGNAL] = signal.signal(SAVE_SIGNAL, self._handle_save)
        self._watcher = threading.Thread(target=self._watch, name="signals", daemon=True)
        self._watcher.start()
        self._token: Token[StopRequest | None] = _request.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _request.reset(self._token)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._writer.close()
        self._watcher.join()
        self._reader.close()

    def check(self) -> None:
        """Leave the phase if a stop is requested; without effect outside `leave_together`.

        Raises:
            Interrupted: a stop is requested.
        """
        if self.in_step is None:
            return
        if self.agreed(self.requested) if self.in_step else self.requested:
            raise Interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def _handle_save(self, number: int, frame: FrameType | None) -> None:
        self.save = True

    def _watch(self) -> None:
        same = SAME_REQUEST_LAUNCHED if "LOCAL_RANK" in os.environ else SAME_REQUEST
        first = None
        while number := self._reader.recv(1):
            if number[0] == SAVE_SIGNAL:
                logger.info("SIGUSR1: a checkpoint is written after this step, and the run goes on")
            if number[0] not in SIGNALS:
                continue
            if first is None:
                first, self.requested = time.monotonic(), True
                logger.warning(
                    "%s: stopping after the current micro-batch or denoising step, with the last"
                    " finished step in a checkpoint; once more ends at once",
                    signal.Signals(number[0]).name,
                )
            elif time.monotonic() - first > same:
                os.write(2, b"\nstopped\n")  # not through a stream that another thread may hold
                end_at_once()


_request: ContextVar[StopRequest | None] = ContextVar("stop request", default=None)


def check() -> None:
    """Call `StopRequest.check` of the request open in this thread, if there is one."""
    request = _request.get()
    if request is not None:
        request.check()


@contextmanager
def ignore_save_signal() -> Iterator[None]:
    """Ignore SIGUSR1, which would otherwise end the process, until there is a step to save.

    What was set before comes back at the end: a program that a later call starts would inherit
    the ignored signal, and a shell cannot trap one that it inherits ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(SAVE_SIGNAL, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(SAVE_SIGNAL, previous)


def take_save_request() -> bool:
    """Whether SIGUSR1 has asked for a checkpoint since the last call."""
    request = _request.get()
    if request is None or not request.save:
        return False
    request.save = False
    return True


@contextmanager
def leave_together(in_step: bool = False) -> Iterator[None]:
    """A phase that all processes leave if one is to stop; without a `StopRequest`, no effect.

    Args:
        in_step: whether all processes make the same calls of `check`, because they communicate
            between them.

    Raises:
        Interrupted: at the end at the latest, on every process.
    """
    request = _request.get()
    if request is None:
        yield
        return
    before, request.in_step = request.in_step, in_step
    try:
        yield
    except Interrupted:
        if not in_step:
            request.agreed(True)
        raise
    finally:
        request.in_step = before
    if request.agreed(request.requested):
        raise Interrupted


@contextmanager
def hold_stops() -> Iterator[None]:
    """A part of a phase that no process leaves, because the others would wait for it."""
    request = _request.get()
    before = None if request is None else request.in_step
    if request is not None:
        request.in_step = None
    try:
        yield
    finally:
        if request is not None:
            request.in_step = before


def end_at_once(status: int = 130) -> None:
    """End this process and its children, whatever its threads are doing."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
    os._exit(status)
