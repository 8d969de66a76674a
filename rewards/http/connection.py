"""A connection to an HTTP service that ends every try in time, whatever the other side does."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

MAX_BYTES = 2**26
"""Largest answer that is read: 64 MiB."""
OPEN_SECONDS = 10.0
"""Longest wait for a host to take a connection: one that is gone would cost a whole try."""


class Unopened(ConnectionError):
    """Nobody took the connection, so nothing was sent."""


class Oversized(RuntimeError):
    """An answer of more than `MAX_BYTES`."""


@dataclass(frozen=True)
class Answer:
    """Status, reason, the pause the service asks for in seconds, and the body."""

    status: int
    reason: str
    pause: float
    body: bytes


class Connection:
    """A connection that is opened when it is first used and kept while both sides allow it.

    Args:
        url: http or https, with a host; its path is put before those of requests.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._http = kinds[parts.scheme](parts.hostname, parts.port)
        self._root = parts.path

    @property
    def is_open(self) -> bool:
        """Whether it can be used again."""
        return self._http.sock is not None

    def close(self) -> None:
        """End it; the next exchange opens it anew."""
        self._http.close()

    def exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> Answer:
        """Send a request and read its answer.

        Raises:
            Unopened: nobody takes the connection.
            OSError, HTTPException: there is none, or not all of it, within `seconds`.
            Oversized: there is too much of it.
        """
        if seconds <= 0:
            raise TimeoutError("no time is left")
        line, late = self._opened(min(seconds, OPEN_SECONDS)), threading.Event()
        line.settimeout(seconds)
        # The timeout of a socket starts anew with every byte; this one does not.
        clock = threading.Timer(seconds, _cut, (line, late))
        clock.daemon = True
        clock.start()
        try:
            self._http.request(method, self._root + path, body, headers)
            answer = _read(self._http.getresponse())
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise TimeoutError(f"no whole answer within {seconds:.1f} s") from error
            raise
        finally:
            clock.cancel()
        if late.is_set():  # a body that ends with the connection looks whole when it is cut
            raise TimeoutError(f"no whole answer within {seconds:.1f} s")
        return answer

    def _opened(self, seconds: float) -> socket.socket:
        if self._http.sock is None:
            self._http.timeout = seconds
            try:
                self._http.connect()
            except ssl.SSLError:  # somebody is there
                raise
            except OSError as error:
                raise Unopened(f"{type(error).__name__}: {error}") from error
        line = self._http.sock
        assert line is not None
        return line


def _read(response: http.client.HTTPResponse) -> Answer:
    content = response.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise Oversized(f"an answer of more than {MAX_BYTES:,} bytes")
    if response.length:  # http.client takes a body that breaks off for a whole one
        raise http.client.IncompleteRead(content, response.length)
    pause = _seconds(response.headers.get("Retry-After"))
    return Answer(response.status, response.reason, pause, content)


def _cut(line: socket.socket, late: threading.Event) -> None:
    late.set()
    try:
        # not through the TLS layer, which another thread is reading from
        socket.socket.shutdown(line, socket.SHUT_RDWR)
    except OSError:
        return  # the other side was faster


def _seconds(retry_after: str | None) -> float:
    """What `Retry-After` says: seconds, or a date."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
