"""`train.log` of a run, its lines on the console, and failures that are only warnings."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import write

logger = logging.getLogger(__name__)
OWN = ("mmrl", "__main__")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RunLog:
    """Sends log records to `train.log` and, on the main process, to the console, while open.

    The loggers of this project get the handlers and do not propagate, so a library that configures
    the root logger neither repeats a line nor loses one. Warnings of libraries arrive through the
    root logger.
    """

    def __init__(self, run: RunDirectory, rank: int = 0) -> None:
        name = "train.log" if rank == 0 else f"train.rank{rank}.log"
        run.path.mkdir(parents=True, exist_ok=True)
        self.handlers: list[logging.Handler] = [logging.FileHandler(run.path / name)]
        if run.is_main:
            self.handlers.append(_ConsoleHandler())
        for handler in self.handlers:
            handler.setFormatter(logging.Formatter(LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
            handler.addFilter(lambda record: record.levelno >= logging.WARNING or _is_own(record))
        self.own = [logging.getLogger(name) for name in OWN]

    def __enter__(self) -> RunLog:
        self.levels = [logger.level for logger in self.own]
        for logger in self.own:
            logger.setLevel(logging.INFO)
            logger.propagate = False
        for logger in (*self.own, logging.getLogger()):
            for handler in self.handlers:
                logger.addHandler(handler)
        return self

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self.own, self.levels, strict=True):
            logger.setLevel(level)
            logger.propagate = True
        for handler in self.handlers:
            for logger in (*self.own, logging.getLogger()):
                logger.removeHandler(handler)
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
