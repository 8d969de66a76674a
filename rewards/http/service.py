"""The client of all HTTP services that rewards use: judges, sandboxes, reward servers.

    service = Service(["http://127.0.0.1:8000/v1"])
    service.post("/chat/completions", {...}, Deadline(600))

Temporary errors are retried with growing, random pauses until the deadline or the last try: a
connection that fails, breaks or times out, and the statuses 408, 429 and 5xx. `Retry-After` is
honoured. Every other status is final, and 500 after three tries. Several addresses take turns; one
that does not answer, or asks for time, is skipped for a while. Requests must be idempotent.
Redirects are not followed, and proxies of the environment are ignored, because most of these
services have local addresses.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import httpx

from mmrl.rewards.http.errors import Refused, Unreachable, Unreadable
from mmrl.rewards.http.event_loop import run

logger = logging.getLogger(__name__)
for _name in ("httpx", "httpcore"):  # they log every request, and headers
    logging.getLogger(_name).setLevel(logging.WARNING)

T = TypeVar("T")
U = TypeVar("U")

BUSY, BROKEN, GATEWAY_TIMEOUT = (429, 503), 500, 504
ABSENT = (0, 429, 502, 503, 504)
"""Statuses of the service and not of the request (0: no answer); its address is skipped."""
BROKEN_TRIES = 3
"""Tries of a request that is answered with 500, which it may have caused itself."""
LONGEST_PAUSE, OPEN_SECONDS, IDLE_SECONDS, LOOK_SECONDS = 10.0, 10.0, 4.0, 5.0
"""Between tries; for a connection; before an idle one is not reused; for a health check."""
MAX_BYTES = 2**26
"""Largest answer that is read."""
JSON = "application/json"


class Deadline:
    """The end of a time limit, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, never below 0."""
        return max(0.0, self._end - time.monotonic())


class _Passing(Exception):
    """A try that failed and may succeed later: the status (0 without an answer), whether the
    service is absent or asks for time, and the seconds it asks for."""

    def __init__(self, problem: str, status: int, is_wait: bool = False, wanted: float = 0.0):
        super().__init__(problem)
        self.status, self.is_wait, self.wanted = status, is_wait, wanted


class Service:
    """A service at one address, or at several that are equal.

    Args:
        urls: its addresses, to which paths of requests are appended.
        secret: bearer token, empty for none; no message shows it.
        concurrency: requests of one call at the same time.
        timeout_s: seconds for one try.
        retries: further tries of one request.
        pause_s: seconds before the second try, doubled each time and multiplied by a random number
            between 0.5 and 1.5.
        patient: whether refused connections (the service may restart), 429 and 503 are waited for
            until the deadline instead of counting as tries.

    Raises:
        ValueError: a URL or a limit that is not valid, or a secret that no header can hold.
    """

    def __init__(
        self,
        urls: Sequence[str],
        secret: str = "",
        concurrency: int = 8,
        timeout_s: float = 120.0,
        retries: int = 4,
        pause_s: float = 0.5,
        patient: bool = False,
    ) -> None:
        if not urls or concurrency < 1 or timeout_s <= 0 or retries < 0 or pause_s < 0:
            limits = f"concurrency={concurrency}, timeout_s={timeout_s:g}, retries={retries}"
            raise ValueError(f"{limits} must be positive, and there must be a URL: {list(urls)}.")
        self.urls = [_check_url(url) for url in urls]
        self.concurrency, self.timeout_s, self.retries = concurrency, timeout_s, retries
        self.pause_s, self.patient, self._secret = pause_s, patient, secret.strip()
        if not all("!" <= character <= "~" for character in self._secret):
            raise ValueError("the secret holds characters that no header can have; set it again.")
        self._turns = itertools.count()
        self._failures = dict.fromkeys(self.urls, 0)
        self._free_at = dict.fromkeys(self.urls, 0.0)
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(),  # certificates of the system, or SSL_CERT_FILE
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
            timeout=httpx.Timeout(None, connect=min(timeout_s / 2, OPEN_SECONDS)),
            headers={"Authorization": f"Bearer {self._secret}"} if self._secret else {},
        )

    def post(self, path: str, content: Any, deadline: Deadline) -> Any:
        """Send JSON, and return the JSON that is answered.

        Raises:
            Unreachable: there was no answer in time.
            Refused: the service does not take the request, or its answer cannot be read.
        """
        [answer] = self.post_all(path, [content], deadline)
        if isinstance(answer, Unreachable | Refused):
            raise answer
        return answer

    def post_all(self, path: str, contents: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`post` of several, at most `concurrency` at a time, answers in order.

        A request that fails has its `Unreachable` or `Refused` in place of an answer.
        """

        async def one(content: Any) -> Any:
            try:
                body = json.dumps(content, allow_nan=False).encode()
                return _read(await self.exchange(path, body, JSON, deadline))
            except (Unreachable, Refused) as error:
                return error

        return run(self.each(one, contents))

    async def each(self, work: Callable[[T], Awaitable[U]], things: Sequence[T]) -> list[U]:
        """The results of `work` for several things in order, `concurrency` at a time."""
        room = asyncio.Semaphore(self.concurrency)

        async def one(thing: T) -> U:
            async with room:
                return await work(thing)

        return await asyncio.gather(*map(one, things))

    def why_not_ready(self, path: str, problem: Callable[[Any], str], name: str) -> str:
        """Why no address could score now; empty if one could, or is busy. The others are logged.

        Args:
            path: that is asked for with `GET`.
            problem: why a service cannot score, by its answer (JSON or a `Refused`), or empty.
            name: of the reward, for the log.
        """

        async def look(url: str) -> str:
            try:
                answer = _read(await self._try(url, "GET", path, None, JSON, LOOK_SECONDS))
            except Refused as error:
                answer = error
            except _Passing as error:
                is_busy = error.status in (*BUSY, GATEWAY_TIMEOUT)
                return "" if is_busy else f"{url} is not there: {error}"
            said = problem(answer)
            return f"{url}: {said}" if said else ""

        found = run(self.each(look, self.urls))
        wrong = "; ".join(filter(None, found))
        if wrong and not all(found):
            logger.warning("reward %s is without some of its servers: %s", name, wrong)
        return wrong if all(found) else ""

    async def exchange(self, path: str, body: bytes, kind: str, deadline: Deadline) -> bytes:
        """Send bytes of a content type, and return the bytes that are answered.

        Raises:
            Unreachable, Refused: see `post`.
        """
        turn, problems, statuses, counted = next(self._turns), {}, [], 0
        while counted <= self.retries:
            url, pause = self._next(turn + len(statuses))
            if pause and pause >= deadline.left:
                problems.setdefault(url, f"{url} is not to be asked for {pause:.0f} s")
                break
            await asyncio.sleep(pause)
            try:
                seconds = min(self.timeout_s, deadline.left)
                answer = await self._try(url, "POST", path, body, kind, seconds)
            except _Passing as error:
                problems[url] = str(error)
                statuses.append(error.status)
                counted += not (self.patient and error.is_wait)
                if statuses.count(BROKEN) == BROKEN_TRIES:
                    raise Refused(f"{error}; {len(statuses)} tries", BROKEN) from error
                logger.info("%s; trying again", error)
                pause = self._skip(url, error, len(statuses))
                if pause >= deadline.left:
                    break
                await asyncio.sleep(pause)
            else:
                self._failures[url] = 0
                return answer
        said = "; ".join(problems.values())
        raise Unreachable(f"{said}; {len(statuses)} tries, {deadline.left:.0f} s left")

    def _next(self, turn: int) -> tuple[str, float]:
        """The next address, and the seconds until it may be used: the first in turn that is not
        skipped, or else the one whose pause ends first."""
        start, now = turn % len(self.urls), time.monotonic()
        order = [*self.urls[start:], *self.urls[:start]]
        url = min(order, key=lambda each: max(now, self._free_at[each]))  # of equals the first
        return url, max(0.0, self._free_at[url] - now)

    def _skip(self, url: str, error: _Passing, tries: int) -> float:
        """Skip an address that is absent or asks for time, longer each time; or else return how
        long this request alone has to wait."""
        if error.status not in ABSENT:
            return self._pause(tries - 1)
        now = time.monotonic()
        if now >= self._free_at[url]:  # requests that failed together are one failure
            self._free_at[url] = now + error.wanted + self._pause(self._failures[url])
            self._failures[url] += 1
        return 0.0

    def _pause(self, failures: int) -> float:
        longest = min(LONGEST_PAUSE, self.pause_s * 2 ** min(failures, 16))
        return longest * random.uniform(0.5, 1.5)

    async def _try(
        self, url: str, method: str, path: str, body: bytes | None, kind: str, seconds: float
    ) -> bytes:
        """Make one try.

        Raises:
            _Passing: another try may succeed.
            Refused: it would not.
        """
        place, headers = url + path, {} if body is None else {"Content-Type": kind}
        request = self._client.build_request(method, place, content=body, headers=headers)
        try:  # httpx's own timeouts start again with every byte
            response, answer = await asyncio.wait_for(self._answer(request), seconds)
        except asyncio.TimeoutError:
            problem = f"{place}: TimeoutError (no complete answer within {seconds:.1f} s)"
            raise _Passing(problem, GATEWAY_TIMEOUT) from None
        except httpx.TransportError as error:
            is_wait = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise _Passing(f"{place}: {_reason(error)}", 0, is_wait) from error
        if self._secret:  # some services echo what they were sent
            answer = answer.replace(self._secret.encode(), b"***")
        status = response.status_code
        if response.is_success:
            return answer
        problem = f"{place} answered {status} {response.reason_phrase}: {_shorten(answer)}"
        if status < 500 and status not in (408, 429):
            raise Refused(problem, status)
        wanted = response.headers.get("Retry-After", "")
        wanted = float(wanted) if wanted.isdecimal() else 0.0
        raise _Passing(problem, status, status in BUSY, wanted)

    async def _answer(self, request: httpx.Request) -> tuple[httpx.Response, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise Refused(f"{request.url} sent more than {MAX_BYTES:,} bytes")
        finally:
            await response.aclose()
        return response, bytes(body)


def _reason(error: BaseException) -> str:
    """The first cause of an error, in the words of the system if it has some."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    words = (
        os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error
    )
    return f"{type(error).__name__} ({words})"


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the answer is no JSON: {_shorten(body)}") from error


def _shorten(body: bytes) -> str:
    text = body.decode(errors="replace")
    # the end of a traceback is its most important part
    return repr(text if len(text) <= 300 else f"{text[:140]} … {text[-160:]}")


def _check_url(url: str) -> str:
    parts = httpx.URL(url)
    if parts.userinfo:
        raise ValueError(f"a URL at {parts.host} holds a name or password, which logs would show.")
    if parts.scheme not in ("http", "https") or not parts.host or parts.query:
        raise ValueError(
            f"the URL {url!r} is not valid; give one such as http://127.0.0.1:8000/v1."
        )
    return url.rstrip("/")
