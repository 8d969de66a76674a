"""Calls a function on several daemon threads."""

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import TypeVar

from mmrl.rewards.http import stop

T = TypeVar("T")
U = TypeVar("U")


def together(work: Callable[[T], U], things: Sequence[T], limit: int) -> list[U]:
    """Call `work` on each thing, `limit` calls at a time, and return the results in order.

    Ctrl-C, or the signal of `mmrl.rewards.http.stop`, ends the wait: no further call begins, and
    the results of running ones are ignored. The threads are daemons, unlike those of
    `concurrent.futures`, which the end of a process waits for.

    Raises:
        BaseException: what the first call that failed raised.
    """
    futures: list[Future[U]] = [Future() for _ in things]
    left = deque(zip(futures, things, strict=True))

    def run() -> None:
        while True:
            try:
                future, thing = left.popleft()
            except IndexError:
                return
            try:
                future.set_result(work(thing))
            except BaseException as error:  # the thread that waits raises it again
                future.set_exception(error)

    try:
        for _ in range(min(limit, len(things))):
            context = contextvars.copy_context()  # has the signal to stop
            threading.Thread(target=context.run, args=(run,), daemon=True).start()
        running = set(futures)
        while running:
            finished, running = wait(running, stop.TICK, FIRST_EXCEPTION)
            for future in finished:
                future.result()  # raises an error now, not after the calls before it
            stop.check()
    finally:
        left.clear()
    return [future.result() for future in futures]
