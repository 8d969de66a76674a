"""The event loop of all services, where a whole exchange has a time limit and can be cancelled."""

import asyncio
import functools
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

from mmrl.rewards.http import stop

T = TypeVar("T")

_lock = threading.Lock()


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
