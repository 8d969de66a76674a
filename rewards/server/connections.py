"""Limits of connections: the time for headers, and their number.

uvicorn waits for headers without limit, and asyncio accepts connections until no descriptor is
left. Here the time from the connection, or its first byte, to the end of the headers is limited. At
the maximum number of connections, the one that has been idle for longest is closed for a new one.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from mmrl.rewards.server.server_config import Limits

logger = logging.getLogger(__name__)
OTHER_DESCRIPTORS = 128
"""Descriptors that are reserved for images, models and the log."""


def build_protocol(limits: Limits) -> type[H11Protocol]:
    """Build the protocol class of the connections of a server."""
    waiting: dict[Bounded, None] = {}
    most = min(limits.max_connections, _descriptors() - OTHER_DESCRIPTORS)
    content = {"waiting": waiting, "most": max(1, most), "seconds": limits.header_seconds}
    return type("BoundedProtocol", (Bounded,), content)


class Bounded(H11Protocol):
    """A connection within the limits.

    Attributes:
        waiting: connections without a request, in the order in which they began to wait.
        most: connections at the same time.
        seconds: for the headers of a request.
    """

    waiting: dict[Bounded, None]
    most: int
    seconds: float
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Close an idle connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most and self.waiting:
            next(iter(self.waiting))._end("idle for longest, closed for another connection")
        self.waiting[self] = None
        self._start()

    def data_received(self, data: bytes) -> None:
        """Limit the time while headers are incomplete."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.waiting[self] = None
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from those that wait."""
        self._stop()
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Run the timer while headers have begun and are not complete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
            self.waiting.pop(self, None)
        elif self.conn.trailing_data[0] and self.timer is None:
            self._start()

    def _start(self) -> None:
        said = f"headers not complete within {self.seconds:g} s"
        self.timer = self.loop.call_later(self.seconds, self._end, said)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _end(self, why: str) -> None:
        self.waiting.pop(self, None)
        self._stop()
        logger.warning("connection closed", extra={"fields": {"code": why}})
        self.transport.abort()


def _descriptors() -> int:
    """Raise the limit of open files as far as the system allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
