"""Ctrl-C as a request to stop at the next safe point."""

from __future__ import annotations

import logging
import signal
from types import FrameType

logger = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While open, the first Ctrl-C (or SIGTERM) only sets `requested`; a second one interrupts."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> StopRequest:
        self.previous = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        logger.warning(
            "%s: finishing this step and writing a checkpoint; once more stops at once",
            signal.Signals(number).name,
        )
