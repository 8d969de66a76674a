"""Several addresses of one service: whose turn it is, and who is left out for a while."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

LONGEST_PAUSE = 10.0
"""Seconds after which a service that is back is found at the latest, but for half as much again."""


class Addresses:
    """Addresses that take turns. One that failed is left out for a while, then tried again.

    Args:
        urls: where the same service is.
        pause_s: seconds the first failure leaves an address out; doubled while it goes on failing,
            up to `LONGEST_PAUSE`, and multiplied by a random number between 0.5 and 1.5.

    Raises:
        ValueError: a URL that is none, or none at all.

    Attributes:
        problems: by address, why it is left out.
    """

    def __init__(self, urls: Sequence[str], pause_s: float) -> None:
        if not urls:
            raise ValueError("there is no URL; give one such as http://127.0.0.1:8000/v1.")
        self.urls = [checked(url) for url in urls]
        self.pause_s = pause_s
        self.problems: dict[str, str] = {}
        self._failures = dict.fromkeys(self.urls, 0)
        self._until = dict.fromkeys(self.urls, 0.0)
        self._asked_until = dict.fromkeys(self.urls, 0.0)
        self._lock = threading.Lock()
        self._random = random.Random()

    def next(self, turn: int) -> tuple[str, float]:
        """Who is asked, and in how many seconds: the first in the order of turns that is not left
        out, else the one that is back first."""
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

    def failed(self, url: str, problem: str, wanted: float = 0.0) -> None:
        """Leave an address out: for as long as it wants, or else for longer every time."""
        with self._lock:
            self.problems[url] = problem
            now = time.monotonic()
            if wanted > 0:  # spread out, or all who were sent away come back at once
                until = now + wanted + self._random.uniform(0, self.pause_s)
                self._asked_until[url] = max(self._asked_until[url], until)
            elif now < self._until[url]:
                return  # requests that failed together are one failure
            else:
                self._until[url] = now + self.pause(self._failures[url])
                self._failures[url] += 1

    def answered(self, url: str) -> None:
        """Count an address among the healthy again; the pause it asked for stands, as the answer
        may be to a request that was sent before."""
        with self._lock:
            self.problems.pop(url, None)
            self._failures[url], self._until[url] = 0, 0.0


def checked(url: str) -> str:
    """A URL without a slash at its end.

    Raises:
        ValueError: it is none, or holds a name or password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"the URL {url!r} is none; give one such as http://127.0.0.1:8000/v1.")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"a URL at {parts.hostname} holds a name or password, which would end up in logs;"
            " leave it out."
        )
    return url.rstrip("/")
