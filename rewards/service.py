"""One client for every HTTP service that rewards ask: judges, sandboxes, reward servers.

    service = Service(["http://127.0.0.1:8000/v1"])
    service.post("/chat/completions", {...}, Deadline(600))

Connections are kept and used again. What may pass by itself is tried again, with pauses that double
and vary, until the deadline or the last try: a connection that fails, breaks off or stays silent,
and the statuses 408, 429 and 5xx. `Retry-After` is honoured. Every other status is final. With
several addresses requests take turns, and a repetition goes to the next one. Requests must be safe
to repeat. Redirects are not followed, and proxies of the environment are not asked: most of these
services have addresses that only this machine knows.
"""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import random
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from rewards.connection import Answer, Connection, Oversized

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 30.0
PASSING = (408, 429)
"""Statuses below 500 that are worth another try."""


class Unreachable(ConnectionError):
    """There was no answer before the deadline, however often it was tried."""


class Refused(RuntimeError):
    """The service answered, and asking again would not help."""


class Unreadable(Refused):
    """An answer that should be JSON and is not."""


class Deadline:
    """A moment after which nobody waits any more.

    Args:
        seconds: from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, never below 0."""
        return max(0.0, self._end - time.monotonic())


class Service:
    """A service at one address, or at several that are the same.

    Args:
        urls: where it is; paths of requests are appended.
        secret: sent as bearer token if there is one; it is kept out of every message.
        concurrency: requests under way at the same time.
        timeout_s: seconds for one try.
        retries: further tries of one request.
        pause_s: seconds before the second try, doubled each time and multiplied by a random number
            between 0.5 and 1.5.

    Raises:
        ValueError: a URL or a limit that is none, or a secret that no header can hold.
    """

    def __init__(
        self,
        urls: Sequence[str],
        secret: str = "",
        concurrency: int = 8,
        timeout_s: float = 120.0,
        retries: int = 4,
        pause_s: float = 0.5,
    ) -> None:
        if concurrency < 1 or timeout_s <= 0 or retries < 0 or pause_s < 0:
            raise ValueError(
                f"concurrency={concurrency} must be 1 or more, timeout_s={timeout_s:g} above 0,"
                f" retries={retries} and the pause {pause_s:g} 0 or more."
            )
        self.urls = [_checked(url) for url in urls]
        self.retries, self.pause_s, self.timeout_s = retries, pause_s, timeout_s
        self.concurrency = concurrency
        self._secret = _printable(secret)
        self._places = threading.BoundedSemaphore(concurrency)
        self._turns = itertools.count()
        self._idle: dict[str, list[Connection]] = {url: [] for url in self.urls}
        self._lock = threading.Lock()
        self._random = random.Random()

    def post(self, path: str, content: Any, deadline: Deadline) -> Any:
        """Send JSON, and return the JSON that is answered.

        Raises:
            Unreachable: there was no answer in time.
            Refused: the service does not take the request, or its answer cannot be read.
        """
        body = json.dumps(content, allow_nan=False).encode()
        return self._ask("POST", path, body, deadline, self.retries)

    def post_all(self, path: str, contents: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`post` of several, at most `concurrency` at a time, answers in order.

        A request that fails has its `Unreachable` or `Refused` in place of an answer.
        """

        def one(content: Any) -> Any:
            try:
                return self.post(path, content, deadline)
            except (Unreachable, Refused) as error:
                return error

        pool = ThreadPoolExecutor(self.concurrency)
        try:
            return list(pool.map(one, contents))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def get(self, path: str, deadline: Deadline) -> Any:
        """The JSON at a path, asked for once at the next address.

        Raises:
            Unreachable, Refused: see `post`.
        """
        return self._ask("GET", path, None, deadline, 0)

    def close(self) -> None:
        """Close the connections that are kept; the next request opens others."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle = {url: [] for url in self.urls}
        for connection in idle:
            connection.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, deadline: Deadline, retries: int
    ) -> Any:
        first, problem = next(self._turns), ""
        for tried in range(retries + 1):
            url, wanted = self.urls[(first + tried) % len(self.urls)], 0.0
            if not self._places.acquire(timeout=deadline.left):
                problem = problem or f"{url} was still busy with earlier requests"
                break
            try:
                answer = self._exchange(url, method, path, body, deadline)
            except ssl.SSLCertVerificationError as error:
                raise Refused(f"{url} is not who it says it is: {error}") from error
            except Oversized as error:
                raise Refused(f"{url}{path} sent {error}") from error
            except (OSError, http.client.HTTPException) as error:
                problem = f"{url}{path}: {type(error).__name__} ({error})"
            else:
                if answer.status // 100 == 2:
                    return self._read(url + path, answer)
                problem = self._complaint(url + path, answer)
                if answer.status < 500 and answer.status not in PASSING:
                    raise Refused(problem)
                wanted = answer.pause
            finally:
                self._places.release()
            pause = max(wanted, self._pause(tried))
            if tried == retries or pause >= deadline.left:
                break
            logger.info("%s; again in %.1f s", problem, pause)
            time.sleep(pause)
        raise Unreachable(f"{problem}; {tried + 1} tries, {deadline.left:.0f} s left")

    def _exchange(
        self, url: str, method: str, path: str, body: bytes | None, deadline: Deadline
    ) -> Answer:
        """One try, on a connection that is kept if there is one."""
        while True:
            kept = self._kept(url)
            connection = kept or Connection(url)
            headers = {"Content-Type": "application/json"} if body is not None else {}
            if self._secret:
                headers["Authorization"] = f"Bearer {self._secret}"
            try:
                seconds = min(self.timeout_s, deadline.left)
                answer = connection.exchange(method, path, body, headers, seconds)
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                connection.close()
                if kept is None:
                    raise
                continue  # a service may close what lies idle, which says nothing about it
            except BaseException:
                connection.close()
                raise
            if connection.is_open:
                with self._lock:
                    self._idle[url].append(connection)
            return answer

    def _kept(self, url: str) -> Connection | None:
        with self._lock:
            return self._idle[url].pop() if self._idle[url] else None

    def _pause(self, tried: int) -> float:
        return min(LONGEST_PAUSE, self.pause_s * 2**tried) * self._random.uniform(0.5, 1.5)

    def _read(self, place: str, answer: Answer) -> Any:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(
                f"{place} answered something that is no JSON: {self._shown(answer.body)}"
            ) from error

    def _complaint(self, place: str, answer: Answer) -> str:
        return self._hidden(
            f"{place} answered {answer.status} {answer.reason}: {self._shown(answer.body)}"
        )

    def _shown(self, body: bytes) -> str:
        return repr(self._hidden(body.decode(errors="replace"))[:200])

    def _hidden(self, text: str) -> str:
        return text.replace(self._secret, "***") if self._secret else text


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"the URL {url!r} is none; give one such as http://127.0.0.1:8000/v1.")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"a URL at {parts.hostname} holds a name or password, which would end up in logs;"
            " leave it out."
        )
    return url.rstrip("/")


def _printable(secret: str) -> str:
    secret = secret.strip()
    if not all("!" <= character <= "~" for character in secret):
        raise ValueError("the secret holds characters that no header can have; set it again.")
    return secret
