"""One run at a time in a directory."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mmrl.config import ConfigError, check

logger = logging.getLogger(__name__)


@contextmanager
def lock_directory(folder: Path, is_main: bool = True) -> Iterator[None]:
    """Keep other runs out of a directory, which is made if it does not exist; the main process
    takes the lock for all of its run.

    The kernel drops the lock when the process ends, so the file of a killed run does not block the
    next one. On a file system without such locks a warning is logged. Raises ConfigError: the
    directory cannot be written, or another run has the lock."""
    check_writable("output_dir", folder)
    if not is_main:
        yield
        return
    made, lock = not folder.exists(), FileLock(folder / ".lock", blocking=False)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"output_dir is '{folder}', where another run is writing. Wait until it has ended, or"
            " choose another output_dir."
        ) from None
    except (OSError, NotImplementedError) as error:
        logger.warning("'%s' cannot be locked (%s): let no second run write there", folder, error)
    try:
        yield
    finally:
        with suppress(OSError):
            Path(lock.lock_file).unlink(missing_ok=True)
            if made:
                folder.rmdir()  # fails where the run has written
        lock.release()


def check_writable(key: str, path: Path) -> None:
    """Raise a ConfigError unless a directory can be written, or made where it does not exist."""
    place = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    why = "cannot be written" if place.is_dir() else "is a file"
    holds = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    check(holds, key, str(path), "a directory, existing or new", f"'{place}' {why}.")
