"""Stops the work of a thread, which checks a signal between requests and while it waits."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TICK = 0.1
"""Seconds between two checks of the signal."""

_SIGNAL: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class Stopped(BaseException):
    """The run ends, and the result of this thread is no longer needed."""


@contextmanager
def stopped_by(signal: threading.Event) -> Iterator[None]:
    """Within the block, `check` and the waits below raise `Stopped` once the signal is set."""
    token = _SIGNAL.set(signal)
    try:
        yield
    finally:
        _SIGNAL.reset(token)


def check() -> None:
    """Raise `Stopped` if the signal of this thread is set."""
    signal = _SIGNAL.get()
    if signal is not None and signal.is_set():
        raise Stopped


def sleep(seconds: float) -> None:
    """`time.sleep` that ends early with `Stopped`."""
    signal = _SIGNAL.get()
    if signal is None:
        time.sleep(seconds)
    elif signal.wait(seconds):
        raise Stopped
