"""The end of a run that makes no progress, or whose launcher or other process has ended.

Rewards have a deadline of their own (`mmrl.rewards.scoring.overlap`), which ends before this one;
communication between processes ends after it, by the time-out of the process group. The launcher
ends all processes after the first, and names its rank.
"""

import faulthandler
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mmrl.runtime.activity import Display, current_display
from mmrl.runtime.interrupt import end_at_once

BEAT = 1.0
"""Seconds between two checks of the progress."""


@contextmanager
def watch_run(limit: float) -> Iterator[None]:
    """Watch the run of this thread inside the context.

    Args:
        limit: seconds without progress (`mmrl.runtime.activity`) after which the process ends, with
            the calls of all its threads on standard error.
    """
    closed, display = threading.Event(), current_display() or Display()
    watched = limit, display, closed
    threading.Thread(target=_watch, args=watched, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _watch(limit: float, display: Display, closed: threading.Event) -> None:
    while not closed.wait(min(BEAT, limit / 4)):
        if display.idle < limit:
            continue
        said = (
            f"\nerror: rank {os.environ.get('RANK', '0')} has made no progress for"
            f" {display.idle:.0f} s in '{', '.join(map(str, list(display.stack)))}'; its calls"
            " follow. Raise ddp_timeout if they only need longer, and run again with"
            " resume_from_checkpoint=auto.\n"
        )
        os.write(2, said.encode())  # not through a stream that another thread may hold
        faulthandler.dump_traceback(2, all_threads=True)
        return end_at_once(1)


def end_with_launcher() -> None:
    """Ask Linux to send a launched process SIGTERM when its launcher is killed."""
    from torch.multiprocessing import _prctl_pr_set_pdeathsig

    if os.environ.get("WORLD_SIZE", "1") != "1":
        _prctl_pr_set_pdeathsig(signal.SIGTERM)
