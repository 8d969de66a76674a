"""Several addresses of one service take turns; an address that fails is paused."""

import random
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

LONGEST_PAUSE = 10.0
"""Longest pause of an address in seconds, before it is multiplied by up to 1.5."""


class Addresses:
    """Addresses in rotation. One that failed is paused and then tried again.

    Args:
        urls: addresses of the same service.
        pause_s: pause in seconds after the first failure; doubled by each further one up to
            `LONGEST_PAUSE`, and multiplied by a random number between 0.5 and 1.5.

    Raises:
        ValueError: no URL, or one that is not valid.

    Attributes:
        problems: by address, why it is paused.
    """

    def __init__(self, urls: Sequence[str], pause_s: float) -> None:
        if not urls:
            raise ValueError("there is no URL; give one such as http://127.0.0.1:8000/v1.")
        self.urls = [check_url(url) for url in urls]
        self.pause_s = pause_s
        self.problems: dict[str, str] = {}
        self._failures = dict.fromkeys(self.urls, 0)
        self._until = dict.fromkeys(self.urls, 0.0)
        self._asked_until = dict.fromkeys(self.urls, 0.0)
        self._lock = threading.Lock()
        self._random = random.Random()

    def next(self, turn: int) -> tuple[str, float]:
        """The next address, and the seconds until it may be used: the first in turn that is not
        paused, or else the one whose pause ends first."""
        start, now = turn % len(self.urls), time.monotonic()
        order = [*self.urls[start:], *self.urls[:start]]
        with self._lock:
            until = {url: max(self._until[url], self._asked_until[url]) for url in order}
        waits = {url: max(0.0, until[url] - now) for url in order}
        url = min(order, key=waits.__getitem__)  # of equals the first
        return url, waits[url]

    def pause(self, failures: int) -> float:
        """Seconds after so many failures in a row."""
        longest = min(LONGEST_PAUSE, self.pause_s * 2 ** min(failures, 16))
        return longest * self._random.uniform(0.5, 1.5)

    def note_failure(self, url: str, problem: str, wanted: float = 0.0) -> None:
        """Pause an address: for `wanted` seconds, or else longer each time."""
        with self._lock:
            self.problems[url] = problem
            now = time.monotonic()
            if wanted > 0:  # random, so that not all clients return at once
                until = now + wanted + self._random.uniform(0, self.pause_s)
                self._asked_until[url] = max(self._asked_until[url], until)
            elif now < self._until[url]:
                return  # requests that failed together are one failure
            else:
                self._until[url] = now + self.pause(self._failures[url])
                self._failures[url] += 1

    def note_answer(self, url: str) -> None:
        """Mark an address as healthy. A pause that it requested remains, because the answer may
        be to an earlier request."""
        with self._lock:
            self.problems.pop(url, None)
            self._failures[url], self._until[url] = 0, 0.0


def check_url(url: str) -> str:
    """A URL without a slash at its end.

    Raises:
        ValueError: it is not valid, or holds a name or password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(
            f"the URL {url!r} is not valid; give one such as http://127.0.0.1:8000/v1."
        )
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"a URL at {parts.hostname} holds a name or password, which would end up in logs;"
            " leave it out."
        )
    return url.rstrip("/")
