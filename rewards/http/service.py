"""The client of all HTTP services that rewards use: judges and reward servers.

    service = Service(["http://127.0.0.1:8000/v1"])
    service.post_all("/chat/completions", [{...}, {...}], Deadline(600))

Temporary errors are retried with growing, random pauses until the deadline: a connection that
fails, breaks or times out, and the statuses 408, 429 and 5xx. `Retry-After` is honoured. Every
other status is final, and 500 after three tries. Several addresses take turns; the next one is
asked at once, and after all of them there is a pause. Requests must be idempotent. Redirects are
not followed, and proxies of the environment are ignored, because most of these services have local
addresses. All exchanges run in one event loop, where each has a time limit and can be cancelled.
"""

import asyncio
import functools
import itertools
import json
import logging
import random
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import httpx

from mmrl.config import ConfigError, above
from mmrl.rewards.http import read_token, stop

logger = logging.getLogger(__name__)
for _name in ("httpx", "httpcore"):  # they log every request, and headers
    logging.getLogger(_name).setLevel(logging.WARNING)

T = TypeVar("T")
U = TypeVar("U")

BUSY, BROKEN, GATEWAY_TIMEOUT = (429, 503, 504), 500, 504
BROKEN_TRIES = 3
"""Tries of a request that is answered with 500, which it may have caused itself."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Doubled each time; every pause is multiplied by a random number between 1 and 1.5."""
OPEN_SECONDS, IDLE_SECONDS, LOOK_SECONDS = 10.0, 4.0, 5.0
"""For a connection; before an idle one is not reused; for a health check."""
CONNECTIONS = 4
"""Simultaneous requests of an HTTP client."""
LARGEST = 64 * 2**20
"""Bytes of an answer, unpacked."""
JSON = "application/json"
_lock = threading.Lock()


class Unreachable(ConnectionError):
    """There was no answer before the deadline or within the allowed tries."""


class Refused(RuntimeError):
    """The service answered, and another try would not help; `status` of the answer, 0 if that is
    not the reason."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unreadable(Refused):
    """An answer that should be JSON and is not."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and wait for its result. Ctrl-C and `mmrl.rewards.http.stop` end both."""
    with _lock:
        future = asyncio.run_coroutine_threadsafe(work, _event_loop())
    try:
        while not wait([future], stop.TICK).done:
            stop.check()
        return future.result()
    finally:
        future.cancel()  # no effect on one that is done


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop, in a daemon thread that does not delay the end of the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="http", daemon=True).start()
    return loop


class Deadline:
    """The end of a time limit, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, never below 0."""
        return max(0.0, self._end - time.monotonic())


class _Passing(Exception):
    """A try that failed and may succeed later: the status (0 without an answer), and the seconds
    that the service asks for."""

    def __init__(self, problem: str, status: int, wanted: float = 0.0):
        super().__init__(problem)
        self.status, self.wanted = status, wanted


class Service:
    """A service at one address, or at several that are equal, to which paths of requests are
    appended. The bearer token `secret`, empty for none, is in no message; `concurrency` requests of
    one call are made at the same time, each try for `timeout_s` seconds. Raises ValueError: a URL
    that is not valid, or none."""

    def __init__(
        self, urls: Sequence[str], secret: str = "", concurrency: int = 8, timeout_s: float = 120.0
    ) -> None:
        if not urls:
            raise ValueError("there must be a URL.")
        self.urls = [_check_url(url) for url in urls]
        self.concurrency, self.timeout_s, self._secret = concurrency, timeout_s, secret
        self._turns = itertools.count()
        verify = ssl.create_default_context()  # certificates of the system, or SSL_CERT_FILE
        # each request reads the state of all connections of its client
        clients = [
            httpx.AsyncClient(
                verify=verify,
                trust_env=False,
                limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
                timeout=httpx.Timeout(None, connect=min(timeout_s / 2, OPEN_SECONDS)),
                headers={"Authorization": f"Bearer {self._secret}"} if self._secret else {},
            )
            for _ in range(-(-concurrency // CONNECTIONS))
        ]
        self._clients, self._busy = clients, [0] * len(clients)

    def post_all(self, path: str, contents: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Send JSON, at most `concurrency` requests at a time; the JSON of the answers in order.

        A request that fails has its `Unreachable` (no answer in time) or `Refused` (it is not
        taken, or its answer cannot be read) in place of an answer.
        """

        async def one(content: Any) -> Any:
            try:
                body = json.dumps(content, allow_nan=False).encode()
                return _read(await self.exchange(path, body, JSON, deadline))
            except (Unreachable, Refused) as error:
                return error

        return run(self.each(one, contents))

    def ask_all(self, path: str, contents: Sequence[Any]) -> list[Any]:
        """Ask the first address once for each content, `concurrency` at a time: POST of JSON, or
        GET for None; the JSON of the answers in order, None for an empty one. Raises Unreachable,
        Refused: for the first that fails."""

        async def one(content: Any) -> Any:
            method, body = (
                ("GET", None) if content is None else ("POST", json.dumps(content).encode())
            )
            try:
                said = await self._try(self.urls[0], method, path, body, JSON, self.timeout_s)
            except _Passing as error:
                raise Unreachable(str(error)) from error
            return _read(said) if said else None

        return run(self.each(one, contents))

    async def each(self, work: Callable[[T], Awaitable[U]], things: Sequence[T]) -> list[U]:
        """The results of `work` for several things in order, `concurrency` at a time."""
        room = asyncio.Semaphore(self.concurrency)

        async def one(thing: T) -> U:
            async with room:
                return await work(thing)

        return await asyncio.gather(*map(one, things))

    def why_not_ready(self, path: str, problem: Callable[[Any], str], name: str) -> str:
        """Why no address could score now; empty if one could, or is busy. The others are logged,
        under the `name` of the reward. `path` is asked for with `GET`, and `problem` says why a
        service cannot score by its answer (JSON or a `Refused`), or nothing."""

        async def look(url: str) -> str:
            try:
                said = problem(_read(await self._try(url, "GET", path, None, JSON, LOOK_SECONDS)))
            except Refused as error:
                said = problem(error)
            except _Passing as error:
                said = "" if error.status in BUSY else f"it is not there: {error}"
            return f"{url}: {said}" if said else ""

        found = run(self.each(look, self.urls))
        wrong = "; ".join(filter(None, found))
        if wrong and not all(found):
            logger.warning("reward %s is without some of its servers: %s", name, wrong)
        return wrong if all(found) else ""

    async def exchange(self, path: str, body: bytes, kind: str, deadline: Deadline) -> bytes:
        """Send bytes of a content type, and return the bytes that are answered. Raises Unreachable,
        Refused: see `post_all`."""
        turn, statuses, problems = next(self._turns), [], dict[str, _Passing]()
        while deadline.left:
            url = self.urls[(turn + len(statuses)) % len(self.urls)]
            try:
                seconds = min(self.timeout_s, deadline.left)
                return await self._try(url, "POST", path, body, kind, seconds)
            except _Passing as error:
                problems[url] = error
                statuses.append(error.status)
                if statuses.count(BROKEN) == BROKEN_TRIES:
                    raise Refused(f"{error}; {len(statuses)} tries", BROKEN) from error
            rounds, rest = divmod(len(statuses), len(self.urls))
            if not rest:
                longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(rounds - 1, 16))
                wanted = min(error.wanted for error in problems.values())
                pause = (wanted or longest) * random.uniform(1.0, 1.5)
                logger.info("%s; again in %.1f s", "; ".join(map(str, problems.values())), pause)
                if pause >= deadline.left:
                    break
                await asyncio.sleep(pause)
        said = "; ".join(map(str, problems.values()))
        raise Unreachable(f"{said}; {len(statuses)} tries, {deadline.left:.0f} s left")

    async def _try(
        self, url: str, method: str, path: str, body: bytes | None, kind: str, seconds: float
    ) -> bytes:
        """Make one try. Raises _Passing: another try may succeed. Raises Refused: it would not."""
        place, headers = url + path, {} if body is None else {"Content-Type": kind}
        sending = self._send(method, place, content=body, headers=headers)
        try:  # httpx's own timeouts start again with every byte
            response, answer = await asyncio.wait_for(sending, seconds)
        except asyncio.TimeoutError:
            problem = f"{place}: TimeoutError (no complete answer within {seconds:.1f} s)"
            raise _Passing(problem, GATEWAY_TIMEOUT) from None
        except httpx.RequestError as error:
            raise _Passing(f"{place}: {_reason(error)}", 0) from error
        status = response.status_code
        if self._secret:  # some services echo what they were sent
            answer = answer.replace(self._secret.encode(), b"***")
        if response.is_success:
            return answer
        problem = f"{place} answered {status} {response.reason_phrase}: {_shorten(answer)}"
        if status < 500 and status not in (408, 429):
            raise Refused(problem, status)
        wanted = response.headers.get("Retry-After", "")
        wanted = float(wanted) if wanted.isdecimal() else 0.0
        raise _Passing(problem, status, wanted)

    async def _send(self, *what: str, **more: Any) -> tuple[httpx.Response, bytes]:
        """The response and its bytes. Raises Refused: there are more than `LARGEST`."""
        answer = bytearray()
        least = self._busy.index(min(self._busy))
        self._busy[least] += 1
        try:
            async with self._clients[least].stream(*what, **more) as response:
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > LARGEST:
                        said = f"{response.url} answered more than {LARGEST // 2**20} MiB"
                        raise Refused(said, response.status_code)
        finally:
            self._busy[least] -= 1
        return response, bytes(answer)


@dataclass(kw_only=True, eq=False)
class ServiceOptions:
    """Options of rewards that ask a service: the limits of their requests."""

    deadline_s: Annotated[float, above(0)] = 300.0
    """Seconds for all requests of one batch, with their repetitions."""
    timeout_s: Annotated[float, above(0)] = 120.0
    """Seconds for one try."""
    concurrency: Annotated[int, above(0)] = 8
    """Simultaneous requests of each process."""

    def open_service(self, urls: Sequence[str], variable: str, keys: tuple[str, str]) -> Service:
        """Open a service at some addresses, with the token in an environment variable, empty for
        none; messages name the configuration `keys` of both. Raises ConfigError: the variable holds
        no token, or an address is not valid."""
        secret = read_token(variable, keys[1])
        try:
            return Service(urls, secret, self.concurrency, self.timeout_s)
        except ValueError as error:
            raise ConfigError(f"{keys[0]}: {error}") from error


def _reason(error: BaseException) -> str:
    """The first cause of an error."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return f"{type(error).__name__} ({error})"


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
        raise ValueError(f"the URL {url!r} is not valid; give one as http://127.0.0.1:8000/v1.")
    return url.rstrip("/")
