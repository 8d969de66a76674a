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

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from types import FrameType

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAVE_SIGNAL = signal.SIGUSR1
"""Asks for a checkpoint after the current step, as schedulers do before they pre-empt a run."""
SAME_REQUEST, SAME_REQUEST_LAUNCHED = 0.3, 2.0
"""Seconds in which further signals count as the first: `timeout` and others send several, and a
launcher forwards the Ctrl-C that the terminal sends to all."""


class Interrupted(KeyboardInterrupt):
    """A phase was abandoned because a stop was requested."""


class StopRequest:
    """While open, the first Ctrl-C (or SIGTERM) sets `requested`, a later one ends the process and
    its children, and SIGUSR1 sets `save`. `agreed`: whether a flag is set on any process; all call
    it.

    Opened when the model is loaded: before that there is nothing to save."""

    def __init__(self, agreed: Callable[[bool], bool] = bool) -> None:
        self.requested, self.save, self.agreed = False, False, agreed
        self.in_step: bool | None = None  # of the current phase; None outside
        self._same_until = float("inf")

    def __enter__(self) -> StopRequest:
        numbers = (*SIGNALS, SAVE_SIGNAL)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        self._token = _request.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _request.reset(self._token)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def phase(self, in_step: bool | None) -> Iterator[None]:
        """A phase that `check` leaves; None for one that it does not leave."""
        before, self.in_step = self.in_step, in_step
        try:
            yield
        finally:
            self.in_step = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # messages go past the streams, which the interrupted code may be writing to
        if number == SAVE_SIGNAL:
            self.save = True
        elif not self.requested:
            same = SAME_REQUEST_LAUNCHED if "LOCAL_RANK" in os.environ else SAME_REQUEST
            self.requested, self._same_until = True, time.monotonic() + same
            said = (
                f"\n{signal.Signals(number).name}: stopping after the current micro-batch or"
                " denoising step, with the last finished step in a checkpoint; once more ends at"
                " once\n"
            )
            os.write(2, said.encode())
        elif time.monotonic() > self._same_until:
            os.write(2, b"\nstopped\n")
            end_at_once()


_request: ContextVar[StopRequest] = ContextVar("stop request", default=StopRequest())  # noqa: B039


def check() -> None:
    """Leave the phase if a stop is requested; without effect outside `leave_together`. Raises
    Interrupted: a stop is requested."""
    request = _request.get()
    if request.in_step is None:
        return
    if request.agreed(request.requested) if request.in_step else request.requested:
        raise Interrupted


def take_save_request() -> bool:
    """Whether SIGUSR1 has asked for a checkpoint since the last call."""
    request = _request.get()
    asked, request.save = request.save, False
    return asked


@contextmanager
def leave_together(in_step: bool = False) -> Iterator[None]:
    """A phase that all processes leave if one is to stop; without a `StopRequest`, no effect. If
    `in_step`, all make the same calls of `check`, because they communicate between them. Raises
    Interrupted: at the end at the latest, on every process."""
    request = _request.get()
    try:
        with request.phase(in_step):
            yield
    except Interrupted:
        if not in_step:
            request.agreed(True)
        raise
    if request.agreed(request.requested):
        raise Interrupted


def hold_stops() -> AbstractContextManager[None]:
    """A part of a phase that no process leaves, because the others would wait for it."""
    return _request.get().phase(None)


def end_at_once(status: int = 130) -> None:
    """End this process and its children, whatever its threads are doing."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    os._exit(status)
