"""What a process of several does when its launcher or another one ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class PeerLostError(RuntimeError):
    """Another process of the run has ended."""


_CONNECTION = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset|refused)|broken pipe", re.I)
_PR_SET_PDEATHSIG = 1


def end_with_launcher() -> None:
    """Have a launched process told to stop when its launcher is killed, as Linux can."""
    if _is_alone():
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def told_of_peers() -> Iterator[None]:
    """Make what a broken connection to another process raises into a line that says so.

    Raises:
        PeerLostError: another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if _is_alone() or not _CONNECTION.search(str(error)):
            raise
        reason = str(error).strip().splitlines()[0][:160]
        raise PeerLostError(
            f"another process of the run has ended or cannot be reached ({reason}). Its own log"
            " says more; run again with resume_from_checkpoint=auto."
        ) from error


def _is_alone() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) == 1
