"""The client of all HTTP services that rewards use: judges, sandboxes, reward servers.

    service = Service(["http://127.0.0.1:8000/v1"])
    service.post("/chat/completions", {...}, Deadline(600))

Connections are reused. Temporary errors are retried with growing, random pauses until the deadline
or the last try: a connection that fails, breaks or times out, and the statuses 408, 429 and 5xx.
`Retry-After` is honoured. Every other status is final. Several addresses take turns, and a retry
uses the next one. An address that does not answer, or requests a pause, is skipped for a while.
Requests must be idempotent. Redirects are not followed, and proxies of the environment are ignored,
because most of these services have local addresses. Time-outs reduce the number of requests to an
address (`mmrl.rewards.http.window`).
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mmrl.rewards.http import stop
from mmrl.rewards.http.addresses import Addresses
from mmrl.rewards.http.connection import Connections, Oversized, Response, Unopened
from mmrl.rewards.http.errors import Refused, Unreachable, Unreadable
from mmrl.rewards.http.together import together
from mmrl.rewards.http.window import Window

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

PASSING = (408, 429)
"""Statuses below 500 that are worth another try."""
ABSENT = (429, 502, 503, 504)
"""Statuses that concern the service and not the request; its address is paused."""
BUSY, GATEWAY_TIMEOUT = (429, 503), 504
BROKEN = 500
"""A status that the service or the request may have caused."""
SHORTEST_TRY = 0.05
"""Seconds; a further try with less would only hide why the ones before it failed."""
JSON = "application/json"


class Deadline:
    """The end of a time limit.

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
    """A service at one address, or at several that are equal.

    Args:
        urls: its addresses, to which paths of requests are appended.
        secret: bearer token, empty for none; no message shows it.
        concurrency: requests at the same time; fewer after time-outs.
        timeout_s: seconds for one try.
        retries: further tries of one request.
        pause_s: seconds before the second try, doubled each time and multiplied by a random number
            between 0.5 and 1.5.
        broken_retries: further tries of a request that is answered with 500, which the request
            itself may have caused; then it is `Refused`. None: as for other errors.
        patient: whether refused connections (the service may restart), 429, 503 and a server that
            stops are waited for until the deadline instead of counting as tries.

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
        broken_retries: int | None = None,
    ) -> None:
        if concurrency < 1 or timeout_s <= 0 or retries < 0 or pause_s < 0:
            raise ValueError(
                f"concurrency={concurrency} must be 1 or more, timeout_s={timeout_s:g} above 0,"
                f" retries={retries} and the pause {pause_s:g} 0 or more."
            )
        self._addresses = Addresses(urls, pause_s)
        self.urls = self._addresses.urls
        self.retries, self.timeout_s, self.patient = retries, timeout_s, patient
        self.concurrency = concurrency
        self._secret = _printable(secret)
        self._places = threading.BoundedSemaphore(concurrency)
        self._windows = {url: Window(concurrency, timeout_s) for url in self.urls}
        self._broken_retries = math.inf if broken_retries is None else broken_retries
        self._turns = itertools.count()
        self._connections = Connections()

    def post(self, path: str, content: Any, deadline: Deadline) -> Any:
        """Send JSON, and return the JSON that is answered.

        Raises:
            Unreachable: there was no answer in time.
            Refused: the service does not take the request, or its answer cannot be read.
        """
        body = json.dumps(content, allow_nan=False).encode()
        return self._ask(_Request("POST", path, body), deadline, _read)

    def exchange(self, path: str, body: bytes, kind: str, deadline: Deadline) -> bytes:
        """Send bytes of a content type, and return the bytes that are answered.

        Raises:
            Unreachable, Refused: see `post`.
        """
        return self._ask(_Request("POST", path, body, kind), deadline, _whole)

    def post_all(self, path: str, contents: Sequence[Any], deadline: Deadline) -> list[Any]:
        """`post` of several, at most `concurrency` at a time, answers in order.

        A request that fails has its `Unreachable` or `Refused` in place of an answer.
        """

        return self.each(lambda content: _try(lambda: self.post(path, content, deadline)), contents)

    def each(self, work: Callable[[T], U], things: Sequence[T]) -> list[U]:
        """The results of `work` for several things in order, `concurrency` at a time."""
        return together(work, things, self.concurrency)

    def look(self, path: str, deadline: Deadline) -> dict[str, Any]:
        """The JSON at a path of every address, requested once, or an `Unreachable` or `Refused`."""

        answers = self.each(lambda url: _try(lambda: self._once(url, path, deadline)), self.urls)
        return dict(zip(self.urls, answers, strict=True))

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return self._addresses.pause(failures)

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        self._connections.close()

    def _once(self, url: str, path: str, deadline: Deadline) -> Any:
        try:
            return self._try(url, _Request("GET", path), deadline, _read)
        except _Passing as error:
            raise Unreachable(str(error), error.is_busy) from error

    def _ask(self, sent: _Request, deadline: Deadline, read: Callable[[str, Response], T]) -> T:
        turn, tries, counted, broken = next(self._turns), 0, 0, 0
        problems: dict[str, str] = {}
        while True:
            own = 0.0
            url, wait = self._addresses.next(turn + tries)
            if wait > 0 and deadline.left - wait < SHORTEST_TRY:
                problems = self._addresses.problems | problems
                break
            stop.sleep(wait)
            if not self._enter(url, deadline):
                problems[url] = f"{url} was still busy with earlier requests"
                break
            begun = time.monotonic()
            try:
                answer = self._try(url, sent, deadline, read)
            except _Passing as error:
                problems[url], tries = str(error), tries + 1
                if error.is_overload:
                    error.wanted = max(error.wanted, self._windows[url].note_timeout(begun))
                counted += not (self.patient and error.is_wait)
                broken += error.status == BROKEN
                if broken > self._broken_retries:
                    raise Refused(f"{error}; {tries} tries", BROKEN) from error
                if error.is_absence:
                    self._addresses.note_failure(url, str(error), error.wanted)
                else:  # a problem of this request alone pauses no address
                    own = max(error.wanted, self._addresses.pause(tries - 1))
            else:
                self._windows[url].note_answer(begun)
                self._addresses.note_answer(url)
                return answer
            finally:
                self._leave(url)
            if counted > self.retries or own >= deadline.left:
                break
            logger.info("%s; trying again", problems[url])
            stop.sleep(own)
        said = "; ".join(problems.values())
        raise Unreachable(f"{said}; {tries} tries, {deadline.left:.0f} s left")

    def _enter(self, url: str, deadline: Deadline) -> bool:
        """Wait for room for one more request; return whether there was some in time."""
        if not self._windows[url].enter(deadline.left):
            return False
        if self._places.acquire(timeout=deadline.left):
            return True
        self._windows[url].leave()
        return False

    def _leave(self, url: str) -> None:
        self._places.release()
        self._windows[url].leave()

    def _try(
        self, url: str, sent: _Request, deadline: Deadline, read: Callable[[str, Response], T]
    ) -> T:
        """Make one try.

        Raises:
            _Passing: another try may succeed.
            Refused: it would not.
        """
        place = url + sent.path
        try:
            answer = self._exchange(url, sent, deadline)
        except ssl.SSLCertVerificationError as error:
            raise Refused(f"the certificate of {url} is not valid: {error}") from error
        except Oversized as error:
            raise Refused(f"{place} sent {error}") from error
        except Unopened as error:
            raise _Passing(f"{place}: {error}", is_sent=False) from error
        except OSError as error:
            late = isinstance(error, TimeoutError)
            raise _Passing(f"{place}: {type(error).__name__} ({error})", is_late=late) from error
        if answer.status // 100 == 2:
            return read(place, answer)
        problem = f"{place} answered {answer.status} {answer.reason}: {_shorten(answer.body)}"
        if answer.status < 500 and answer.status not in PASSING:
            raise Refused(problem, answer.status)
        # what vLLM answers on open connections while it stops
        stops = answer.status == BROKEN and b"after shutdown" in answer.body
        raise _Passing(problem, 503 if stops else answer.status, answer.pause)

    def _exchange(self, url: str, sent: _Request, deadline: Deadline) -> Response:
        headers = {} if sent.body is None else {"Content-Type": sent.kind}
        if self._secret:
            headers["Authorization"] = f"Bearer {self._secret}"
        seconds = min(self.timeout_s, deadline.left)
        answer = self._connections.exchange(
            sent.method, url + sent.path, sent.body, headers, seconds
        )
        return self._without_secret(answer)

    def _without_secret(self, answer: Response) -> Response:
        """An answer without the secret: some services echo what they were sent."""
        if not self._secret:
            return answer
        reason = answer.reason.replace(self._secret, "***")
        return replace(
            answer, reason=reason, body=answer.body.replace(self._secret.encode(), b"***")
        )


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    body: bytes | None = None
    kind: str = JSON


class _Passing(Exception):
    """A try that failed and may succeed later: the status (0 without an answer), the pause that the
    service requests in seconds, whether the request was sent, and whether it timed out."""

    def __init__(
        self,
        problem: str,
        status: int = 0,
        wanted: float = 0.0,
        is_sent: bool = True,
        is_late: bool = False,
    ) -> None:
        super().__init__(problem)
        self.status, self.wanted, self.is_sent = status, wanted, is_sent
        self.is_overload = is_late or status == GATEWAY_TIMEOUT
        self.is_busy = self.is_overload or status in BUSY

    @property
    def is_absence(self) -> bool:
        """Whether the next request would fail too."""
        return self.status == 0 or self.status in ABSENT

    @property
    def is_wait(self) -> bool:
        """Whether the request cannot be the cause: the service is absent, or requests time. It may
        be the cause of a broken connection."""
        return self.status in BUSY or not self.is_sent


def _try(work: Callable[[], T]) -> T | Unreachable | Refused:
    """The result of some work, or why there is none."""
    try:
        return work()
    except (Unreachable, Refused) as error:
        return error


def _whole(place: str, answer: Response) -> bytes:
    return answer.body


def _read(place: str, answer: Response) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        said = f"{place} answered something that is no JSON: {_shorten(answer.body)}"
        raise Unreadable(said) from error


def _shorten(body: bytes) -> str:
    text = body.decode(errors="replace")
    # the end of a traceback is its most important part
    return repr(text if len(text) <= 300 else f"{text[:140]} … {text[-160:]}")


def _printable(secret: str) -> str:
    secret = secret.strip()
    if not all("!" <= character <= "~" for character in secret):
        raise ValueError("the secret holds characters that no header can have; set it again.")
    return secret
