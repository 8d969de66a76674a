"""One run at a time in a directory."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmrl.config import ConfigError, check

logger = logging.getLogger(__name__)


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
    path = folder / ".lock"
    file = _take_lock(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
            if made:
                folder.rmdir()  # fails where the run has written
        os.close(file)


def _take_lock(path: Path) -> int:
    """Take the lock and return its open file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 1000, 0).decode(errors="replace") or "another run"
        os.close(file)
        raise ConfigError(
            f"output_dir is '{path.parent}', where {holder} is writing. Wait until it has"
            " ended, or choose another output_dir."
        ) from None
    except OSError as error:
        logger.warning("'%s' cannot be locked (%s): let no second run write there", path, error)
        return file
    with suppress(FileNotFoundError):
        if path.stat().st_ino == os.fstat(file).st_ino:
            about = f"process {os.getpid()} on {socket.gethostname()}"
            os.truncate(file, 0)
            os.pwrite(file, f"{about}, since {time.strftime('%F %T')},".encode(), 0)
            return file
    os.close(file)  # its last holder has removed the file
    return _take_lock(path)


def check_writable(key: str, path: Path) -> None:
    """Raise a ConfigError unless a directory can be written, or made where it does not exist."""
    place = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    for holds, what in (
        (place.is_dir(), "is a file"),
        (os.access(place, os.W_OK | os.X_OK), "cannot be written"),
    ):
        check(holds, key, str(path), "a directory, existing or new", f"'{place}' {what}.")
