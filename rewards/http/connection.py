"""HTTP exchanges over pooled connections, each with a time limit for the whole exchange.

The timeouts of httpx restart with every read, so a service that sends one byte at a time would not
exceed them. Therefore httpx runs in an event loop, where a whole exchange can be cancelled.
"""

import asyncio
import functools
import logging
import os
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from mmrl.rewards.http import stop

MAX_BYTES = 2**26
"""Largest answer that is read: 64 MiB."""
OPEN_SECONDS = 10.0
"""Longest wait for a connection, so that a host that is down does not use up a whole try."""
IDLE_SECONDS = 4.0
"""Longest idle time before a connection is reused: uvicorn closes them after 5 seconds."""

for _name in ("httpx", "httpcore"):  # they log every request, and headers
    logging.getLogger(_name).setLevel(logging.WARNING)

_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


class Unopened(ConnectionError):
    """No connection could be opened, so nothing was sent."""


class Oversized(RuntimeError):
    """An answer of more than `MAX_BYTES`."""


@dataclass(frozen=True)
class Response:
    """Status, reason, the pause in seconds that the service asks for, and the body."""

    status: int
    reason: str
    pause: float
    body: bytes


class Connections:
    """Connections to the hosts of a service, kept open and reused.

    Redirects are not followed, and proxies of the environment are not used.
    """

    def __init__(self) -> None:
        self._open()

    def exchange(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Response:
        """Send a request and read its answer.

        Raises:
            Unopened: no connection could be opened.
            TimeoutError: there is no complete answer within `seconds`.
            ssl.SSLCertVerificationError: the certificate of the host is not valid.
            ConnectionError: the connection broke, or the answer is not HTTP.
            Oversized: the answer is too large.
        """
        if seconds <= 0:
            raise TimeoutError("no time is left")
        request = self._client.build_request(
            method,
            url,
            content=body,
            headers=headers,
            # half: the wait for a connection must end first
            timeout=httpx.Timeout(None, connect=min(seconds / 2, OPEN_SECONDS)),
        )
        work = _exchange(self._client, request, seconds)
        return stop.result(asyncio.run_coroutine_threadsafe(work, _event_loop()))

    def close(self) -> None:
        """Close all connections; the next exchange opens new ones."""
        self._closing()
        self._open()

    def _open(self) -> None:
        self._client = httpx.AsyncClient(
            verify=_tls(),
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            headers={"Accept-Encoding": "identity"},
        )
        self._closing = weakref.finalize(self, _close, self._client)
        self._closing.atexit = False


async def _exchange(client: httpx.AsyncClient, request: httpx.Request, seconds: float) -> Response:
    try:
        return await asyncio.wait_for(_answer(client, request), seconds)
    except asyncio.TimeoutError as error:
        raise TimeoutError(f"no complete answer within {seconds:.1f} s") from error
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        reason = _first(error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise reason from error
        kind = ConnectionError if isinstance(reason, ssl.SSLError) else Unopened
        refused = isinstance(reason, ConnectionError) and reason.errno
        text = os.strerror(refused) if refused else reason  # asyncio has its own message
        raise kind(f"{type(reason).__name__}: {text}") from error
    except httpx.TransportError as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error


async def _answer(client: httpx.AsyncClient, request: httpx.Request) -> Response:
    response = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise Oversized(f"an answer of more than {MAX_BYTES:,} bytes")
    finally:
        await response.aclose()
    pause = _seconds(response.headers.get("Retry-After"))
    return Response(response.status_code, response.reason_phrase, pause, bytes(body))


def _first(error: BaseException) -> BaseException:
    """The original cause of an error."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _close(client: httpx.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _event_loop())


def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in a daemon thread that does not delay the end of the
    process. A forked process starts its own."""
    with _lock:
        if os.getpid() not in _loops:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="http", daemon=True).start()
        return _loops[os.getpid()]


@functools.cache
def _tls() -> ssl.SSLContext:
    """Certificates of the system, or those that `SSL_CERT_FILE` names."""
    return ssl.create_default_context()


def _seconds(retry_after: str | None) -> float:
    """The pause that `Retry-After` asks for, as seconds or as a date."""
    if retry_after is None:
        return 0.0
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
