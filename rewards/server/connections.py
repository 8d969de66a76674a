"""Connections of the server: how long one may take for its headers, and how many there are.

uvicorn waits for headers for ever, and asyncio takes connections until no descriptor is left. Here
a client has some seconds from its first byte, or from its connection, to the end of its headers;
and where as many connections are open as may be, the one that has been without a request for
longest makes room for the next.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rewards.server.server_config import Limits

logger = logging.getLogger(__name__)
OTHER_DESCRIPTORS = 128
"""That are left for images, models and the log."""


def protocol_of(limits: Limits) -> type[H11Protocol]:
    """The protocol of all connections of a server."""
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
            next(iter(self.waiting))._end("the longest without a request, for another connection")
        self.waiting[self] = None
        self._start()

    def data_received(self, data: bytes) -> None:
        """Watch the time while headers are incomplete."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.waiting[self] = None
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop()
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Keep the timer running exactly while headers have begun and are not complete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
            self.waiting.pop(self, None)
        elif self.conn.trailing_data[0] and self.timer is None:
            self._start()

    def _start(self) -> None:
        said = f"no whole headers within {self.seconds:g} s"
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
    """How many files this process may have open, as many as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
