"""`train.log` of a run, its lines on the console, and failures that are only warnings."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import write

logger = logging.getLogger(__name__)
OWN = ("mmrl", "__main__")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def log_run(run: RunDirectory, rank: int = 0) -> Iterator[None]:
    """Send log records to `train.log` and, on the main process, to the console.

    The loggers of this project get the handlers and do not propagate, so a library that configures
    the root logger neither repeats a line nor loses one. Warnings of libraries arrive through the
    root logger.
    """
    run.path.mkdir(parents=True, exist_ok=True)
    name = "train.log" if rank == 0 else f"train.rank{rank}.log"
    handlers: list[logging.Handler] = [logging.FileHandler(run.path / name)]
    handlers += [_ConsoleHandler()] if run.is_main else []
    own = [logging.getLogger(name) for name in OWN]
    levels, listened = [each.level for each in own], (*own, logging.getLogger())
    for handler in handlers:
        handler.setFormatter(logging.Formatter(LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or _is_own(record))
        for each in listened:
            each.addHandler(handler)
    for each in own:
        each.setLevel(logging.INFO)
        each.propagate = False
    try:
        yield
    finally:
        for each, level in zip(own, levels, strict=True):
            each.setLevel(level)
            each.propagate = True
        for handler in handlers:
            for each in listened:
                each.removeHandler(handler)
            handler.close()


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] in OWN


class _ConsoleHandler(logging.Handler):
    """Writes above the progress bar; warnings of libraries where these do not show them."""

    def emit(self, record: logging.LogRecord) -> None:
        streams = [getattr(each, "stream", None) for each in logging.getLogger().handlers]
        if _is_own(record) or not {sys.stderr, sys.stdout}.intersection(streams):
            write(self.format(record))


@contextmanager
def warn_of_failure(what: str, repeat: str) -> Iterator[None]:
    """Warn of a failure inside the context, where `what` is done, and how to `repeat` it. For what
    follows a model: it changes neither that nor how a run ends."""
    try:
        yield
    except Exception as error:  # code of others raises anything
        said = " ".join(str(error).split()) or "no reason given"
        logger.warning("%s failed (%s: %s). %s", what, type(error).__name__, said, repeat)
