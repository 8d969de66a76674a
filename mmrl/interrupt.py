"""Ctrl-C as a request to stop at the next safe point."""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType

logger = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


SAME_REQUEST = 2.0
"""Seconds in which further signals belong to the first: launchers pass Ctrl-C on to processes that
the terminal has already told."""


class StopRequest:
    """While open, the first Ctrl-C (or SIGTERM) only sets `requested`; a later one interrupts.

    Opened when the model is loaded: before that there is nothing to keep, and one interrupts.
    """

    def __init__(self) -> None:
        self.requested = False
        self.since = 0.0

    def __enter__(self) -> StopRequest:
        self.previous = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and time.monotonic() - self.since > SAME_REQUEST:
            raise KeyboardInterrupt
        if self.requested:
            return
        self.requested, self.since = True, time.monotonic()
        logger.warning(
            "%s: stopping after this step or batch of an evaluation, with every finished step in a"
            " checkpoint; once more stops at once",
            signal.Signals(number).name,
        )
