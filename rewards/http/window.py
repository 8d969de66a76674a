"""The number of simultaneous requests to one address: reduced by time-outs, then restored."""

import random
import threading
import time

SMALLEST = 1 / 64
"""Least size of a window."""
LONGEST_REST = 60.0
"""Longest rest between two requests in seconds, before it is multiplied by up to 1.5."""


class Window:
    """The window of requests to one address, as in TCP's congestion control (AIMD, RFC 5681).

    A server continues to work on requests whose clients have timed out. If these are repeated at
    once, they pile up until none is answered in time. So a time-out halves the window, once for all
    simultaneous requests, and answers grow it by one request per round. A window below 1 admits one
    request at a time, after a rest that grows as the window shrinks, so that many clients together
    can be as slow as one server.

    Args:
        largest: requests under way at most; the size at the start.
        timeout_s: seconds after which a request has timed out.
    """

    def __init__(self, largest: int, timeout_s: float) -> None:
        self.largest, self.size, self.timeout_s = largest, float(largest), timeout_s
        self._under_way, self._shrunk, self._free_at = 0, 0.0, 0.0
        self._changed = threading.Condition()
        self._random = random.Random()

    def enter(self, seconds: float) -> bool:
        """Wait for room for at most `seconds`; return whether there is some. Call `leave` later."""
        end = time.monotonic() + seconds
        with self._changed:
            while (wait := self._wait()) > 0:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(wait, left))
            self._under_way += 1
            return True

    def leave(self) -> None:
        """Give the room back."""
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def note_answer(self, started: float) -> None:
        """Grow by one request for each round of answers.

        Args:
            started: when the request was sent, as `time.monotonic` says.
        """
        with self._changed:
            grown = self.size + 1 / self.size if self.size >= 1 else self.size * 2**0.5
            self.size, now = min(float(self.largest), grown), time.monotonic()
            self._free_at = now + self._rest(now - started)
            self._changed.notify_all()

    def note_timeout(self, started: float) -> float:
        """Halve, unless the request was sent before the last time that it was halved.

        Returns:
            Seconds until there may be room again.
        """
        with self._changed:
            now = time.monotonic()
            if started >= self._shrunk:
                self.size, self._shrunk = max(SMALLEST, self.size / 2), now
                self._free_at = now + self._rest(now - started)
            return max(0.0, self._free_at - now)

    def _wait(self) -> float:
        """Seconds until there may be room; 0 if there is."""
        if self._under_way >= max(1, int(self.size)):
            return self.timeout_s
        return max(0.0, self._free_at - time.monotonic())

    def _rest(self, taken: float) -> float:
        """Seconds without a request after one that has taken so many: none from a size of 1 on."""
        if self.size >= 1:
            return 0.0
        rest = min(LONGEST_REST, taken * (1 / self.size - 1))
        return rest * self._random.uniform(0.5, 1.5)
