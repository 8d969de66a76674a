"""The end of the launcher or of another process of the run."""

import ctypes
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mmrl.runtime.watchdog import lost_process


class PeerLostError(RuntimeError):
    """Another process of the run has ended."""


_CONNECTION = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset|refused)|broken pipe", re.I)
_PR_SET_PDEATHSIG = 1


def end_with_launcher() -> None:
    """Ask Linux to send a launched process SIGTERM when its launcher is killed."""
    if _is_alone():
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def explain_lost_peers() -> Iterator[None]:
    """Turn the error of a broken connection to another process into a readable one.

    Raises:
        PeerLostError: another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if _is_alone() or not _CONNECTION.search(str(error)):
            raise
        reason = lost_process() or str(error).strip().splitlines()[0][:160]
        raise PeerLostError(
            f"another process of the run has ended or cannot be reached ({reason}). Its own log"
            " says more; run again with resume_from_checkpoint=auto."
        ) from error


def _is_alone() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) == 1
