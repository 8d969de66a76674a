"""Stops the work of a thread, which checks a signal between requests and while it waits."""

import threading
from contextvars import ContextVar

TICK = 0.1
"""Seconds between two checks of the signal."""

_NEVER = threading.Event()
SIGNAL: ContextVar[threading.Event] = ContextVar("stop", default=_NEVER)
"""The signal of this thread."""


class Stopped(BaseException):
    """The run ends, and the result of this thread is no longer needed."""


def check() -> None:
    """Raise `Stopped` if the signal of this thread is set."""
    if SIGNAL.get().is_set():
        raise Stopped


def sleep(seconds: float) -> None:
    """`time.sleep` that ends early with `Stopped`."""
    if SIGNAL.get().wait(seconds):
        raise Stopped
