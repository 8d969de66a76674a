"""One run at a time in a directory."""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmrl.config import ConfigError, check

logger = logging.getLogger(__name__)
NAME = ".lock"


@contextmanager
def lock_directory(folder: Path, is_main: bool = True) -> Iterator[None]:
    """Keep other runs out of a directory, which is made if it does not exist.

    The kernel drops the lock when the process ends, so the file of a killed run does not block the
    next one. On a file system without such locks a warning is logged.

    Args:
        folder: the directory.
        is_main: whether this process takes the lock for all of its run.

    Raises:
        ConfigError: the directory cannot be written, or another run has the lock; names its process
            and host.
    """
    check_writable("output_dir", folder)
    if not is_main:
        yield
        return
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    file = _take_lock(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)
        if made:
            with suppress(OSError):  # not empty: the run has written
                folder.rmdir()


def _take_lock(path: Path) -> int:
    """Take the lock and return its open file."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file)
            os.close(file)
            raise ConfigError(
                f"output_dir is '{path.parent}', where {holder} is writing. Wait until it has"
                " ended, or choose another output_dir."
            ) from None
        except OSError as error:
            logger.warning("'%s' cannot be locked (%s): let no second run write there", path, error)
            return file
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                break
        os.close(file)  # its last holder has removed the file
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%F %T")}
    os.truncate(file, 0)
    os.pwrite(file, json.dumps(about).encode(), 0)
    return file


def _holder(file: int) -> str:
    """The holder of the lock, if the file is readable."""
    try:
        about = json.loads(os.pread(file, 1000, 0))
        return f"process {about['pid']} on {about['host']}, since {about['since']},"
    except (ValueError, KeyError, TypeError):
        return "another run"


def check_writable(key: str, path: Path) -> None:
    """Raise a ConfigError unless a directory can be written, or made where it does not exist."""
    place = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    for holds, what in (
        (place.is_dir(), "is a file"),
        (os.access(place, os.W_OK | os.X_OK), "cannot be written"),
    ):
        check(holds, key, str(path), "a directory, existing or new", f"'{place}' {what}.")
