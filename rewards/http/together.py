"""Several pieces of work at once, in threads that no process waits for when it ends."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

TICK = 0.1
"""Seconds after which who waits runs Python code again; it cannot be broken off in between."""

_Outcome = tuple[int, U | None, BaseException | None]


def together(work: Callable[[T], U], things: Sequence[T], limit: int) -> list[U]:
    """What `work` makes of several things, in order, `limit` of them at a time.

    Who waits may be broken off (Ctrl-C, `rewards.scoring.overlap.Stopped`). Nothing else is begun
    then, and what is under way ends unheard: the threads are daemons, unlike those of
    `concurrent.futures`, which the end of a process waits for.

    Raises:
        BaseException: the first that `work` raises.
    """
    left = deque(enumerate(things))
    done: queue.SimpleQueue[_Outcome[U]] = queue.SimpleQueue()

    def run() -> None:
        while True:
            try:
                n, thing = left.popleft()
            except IndexError:  # another thread took the last
                return
            try:
                done.put((n, work(thing), None))
            except BaseException as error:  # who waits raises it again
                done.put((n, None, error))

    try:
        for _ in range(min(limit, len(things))):
            threading.Thread(target=run, daemon=True).start()
        found = dict(_result(done) for _ in things)
    finally:
        left.clear()
    return [found[n] for n in range(len(things))]


def _result(done: queue.SimpleQueue[_Outcome[U]]) -> tuple[int, U]:
    """The next result, as soon as there is one."""
    while True:
        try:
            n, result, error = done.get(timeout=TICK)
        except queue.Empty:
            continue
        if error is not None:
            raise error
        return n, result  # type: ignore[return-value]
