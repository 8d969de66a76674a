"""Ctrl-C as a request to stop at the next place where nothing half done is kept.

    with StopRequest(agreed=…):
        with leaving_together():  # a phase that leaves no trace where it is left
            for part in …:
                check()           # raises Interrupted here once a stop is requested

Several processes leave the same phase or none, since each waits for the others in what follows. A
phase without communication is left by each on its own, which then waits at its end. Where every
part communicates (`in_step`), the processes agree at each `check`, so they must make equally many.
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

SAME_REQUEST = 0.3
"""Seconds in which further signals belong to the first: `timeout` and the like send several."""

SAME_REQUEST_LAUNCHED = 2.0
"""The same under a launcher, which passes Ctrl-C on to processes that the terminal has told."""


class Interrupted(KeyboardInterrupt):
    """A phase was left because a stop was requested."""


class StopRequest:
    """While open, the first Ctrl-C (or SIGTERM) sets `requested`, a later one ends the process.

    Opened when the model is loaded: before that there is nothing to keep. Python runs signal
    handlers between two operations of the main thread, and a backward pass is one operation; so a
    thread reads the signals, and ends the process and its children even then.

    Args:
        agreed: whether a flag is set on any process; all call it.
    """

    def __init__(self, agreed: Callable[[bool], bool] = bool) -> None:
        self.requested, self.agreed = False, agreed
        self.in_step: bool | None = None  # of the phase that may be left; None outside of any

    def __enter__(self) -> StopRequest:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
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
        """Leave the phase if a stop is requested; nothing outside of `leaving_together`.

        Raises:
            Interrupted: so it is.
        """
        if self.in_step is None:
            return
        if self.agreed(self.requested) if self.in_step else self.requested:
            raise Interrupted

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def _watch(self) -> None:
        same = SAME_REQUEST_LAUNCHED if "LOCAL_RANK" in os.environ else SAME_REQUEST
        first = None
        while told := self._reader.recv(1):
            if told[0] not in SIGNALS:
                continue
            if first is None:
                first, self.requested = time.monotonic(), True
                logger.warning(
                    "%s: stopping after the micro-batch or denoising step at hand, with the last"
                    " finished step in a checkpoint; once more ends at once",
                    signal.Signals(told[0]).name,
                )
            elif time.monotonic() - first > same:
                end_at_once()


_request: ContextVar[StopRequest | None] = ContextVar("stop request", default=None)


def check() -> None:
    """`StopRequest.check` of the request that is open in this thread, if one is."""
    request = _request.get()
    if request is not None:
        request.check()


@contextmanager
def leaving_together(in_step: bool = False) -> Iterator[None]:
    """A phase that processes leave together if any is told to stop; without a request, nothing.

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


def end_at_once() -> None:
    """End this process and all that it has started, whatever its threads are doing."""
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
    os.write(2, b"\nstopped\n")  # not through a stream that another thread may hold
    os._exit(130)
