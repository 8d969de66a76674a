"""The time limit for the headers of requests, which uvicorn waits for without end."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """A connection that is closed if the headers of its first request are not complete after so
    many seconds, or those of a later one after twice as many."""

    seconds = 10.0
    _has_begun = True
    _next_look: asyncio.TimerHandle

    def connection_made(self, transport: Any) -> None:
        """Start to look."""
        super().connection_made(transport)
        self._next_look = self.loop.call_later(self.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_first = self.cycle is None
        waits = self.conn.their_state is h11.IDLE and (is_first or self.conn.trailing_data[0])
        if waits and self._has_begun:
            return self.transport.abort()
        self._has_begun = bool(waits)
        self._next_look = self.loop.call_later(self.seconds, self._look)
