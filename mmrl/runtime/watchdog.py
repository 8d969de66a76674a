"""The end of a run that makes no progress, or whose launcher or other process has ended.

A thread in each process watches that process alone. The one that hangs ends first, because one
that waits for it in a collective has a grace, and the launcher ends the others.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mmrl.runtime.activity import Display, current_display
from mmrl.runtime.interrupt import end_at_once

logger = logging.getLogger(__name__)
BEAT = 1.0
"""Seconds between two checks of the progress."""
GRACE = 30.0
"""Seconds added to the limit of a process that waits in a collective; collectives wait longer."""
COLLECTIVE = re.compile("torch/distributed/|deepspeed/comm/")
CONNECTION = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset|refused)|broken pipe", re.I)
PR_SET_PDEATHSIG = 1


class PeerLostError(RuntimeError):
    """Another process of the run has ended."""


@contextmanager
def watch_run(limit: float) -> Iterator[None]:
    """Watch the run of this thread inside the context.

    Args:
        limit: seconds without progress (`mmrl.runtime.activity`) after which the process ends.
    """
    closed = threading.Event()
    watched = limit, current_display() or Display(), threading.get_ident(), closed
    threading.Thread(target=_watch, args=watched, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _watch(limit: float, display: Display, thread: int, closed: threading.Event) -> None:
    while not closed.wait(min(BEAT, limit / 4)):
        # a thread that C++ starts is listed before it is complete, and reading its calls has
        # crashed Python 3.11: calls are read only in a process that hangs, which starts none
        stacks = read_stacks() if display.idle >= limit else {}
        calls = stacks.get(thread, ["a call that is not known"])
        waits = any(COLLECTIVE.search(call) for call in calls)
        if display.idle < limit + GRACE * waits or closed.is_set():
            continue
        verdict = (
            f"rank {os.environ.get('RANK', '0')} has made no progress for {display.idle:.0f} s in"
            f" '{', '.join(map(str, list(display.stack)))}', at {calls[0]}"
            f"{', where it waits for another process' * waits}{_find_rewards(stacks)}. The limit is"
            f" ddp_timeout={limit:g} seconds; raise it if that call only needs longer. Run again"
            " with resume_from_checkpoint=auto."
        )
        os.write(2, f"\nerror: {verdict}\n".encode())  # not through a stream that may be held
        faulthandler.dump_traceback(2, all_threads=True)
        log = threading.Thread(target=logger.error, args=("%s", verdict), daemon=True)
        log.start()
        log.join(timeout=5)
        return end_at_once(1)


def _find_rewards(stacks: dict[int, list[str]]) -> str:
    """The rewards that threads call now; the others wait for samples in `_next_lots`."""
    found = [(one.name, stacks.get(one.ident or 0, [])) for one in threading.enumerate()]
    busy = [one for one in found if one[0].startswith("reward ") and "_next_lots" not in str(one)]
    return "".join(f"; {name} at {calls[0]}" for name, calls in busy if calls)


def read_stacks() -> dict[int, list[str]]:
    """The calls of every thread by its identifier, the innermost first; none is left out.

    `faulthandler` reads all of them at one moment. Frames from `sys._current_frames` go on running
    while they are read, and in Python 3.11 the caller of a frame that has ended may be any object.
    """
    with tempfile.TemporaryFile() as file:  # a pipe that is full would wait for its reader
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    _, *parts = re.split(r"^(?:Current t|T)hread 0x([0-9a-f]+).*\n", text, flags=re.M)
    stacks = zip(parts[::2], parts[1::2], strict=True)
    return {int(one, 16): calls for one, said in stacks if (calls := re.findall("File .*", said))}


def end_with_launcher() -> None:
    """Ask Linux to send a launched process SIGTERM when its launcher is killed."""
    libc = ctypes.CDLL(None)
    if os.environ.get("WORLD_SIZE", "1") != "1" and hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def explain_lost_peers() -> Iterator[None]:
    """Turn the error of a broken connection to another process into a readable one.

    Raises:
        PeerLostError: another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if os.environ.get("WORLD_SIZE", "1") == "1" or not CONNECTION.search(str(error)):
            raise
        raise PeerLostError(
            "another process of the run has ended or cannot be reached"
            f" ({str(error).strip().splitlines()[0][:160]}). Its log and the report of the"
            " launcher say more; run again with resume_from_checkpoint=auto."
        ) from error
