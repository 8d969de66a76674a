"""`train.log` of a run, and its lines on the console."""

from __future__ import annotations

import logging
import sys

from mmrl.run.run_directory import RunDirectory
from mmrl.runtime.activity import write

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
            handler.addFilter(_own_or_warning)
        self.own = [logging.getLogger(name) for name in OWN]

    def __enter__(self) -> RunLog:
        self.before = [(logger.level, logger.propagate) for logger in self.own]
        for logger in self.own:
            logger.setLevel(logging.INFO)
            logger.propagate = False
        for logger in (*self.own, logging.getLogger()):
            for handler in self.handlers:
                logger.addHandler(handler)
        return self

    def __exit__(self, *_: object) -> None:
        for logger, (level, propagate) in zip(self.own, self.before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate
        for handler in self.handlers:
            for logger in (*self.own, logging.getLogger()):
                logger.removeHandler(handler)
            handler.close()


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] in OWN


def _own_or_warning(record: logging.LogRecord) -> bool:
    """Whether a record is of this project, or a warning of a library."""
    return record.levelno >= logging.WARNING or _is_own(record)


class _ConsoleHandler(logging.Handler):
    """Writes above the progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        if _is_own(record) or not _others_on_console():
            write(self.format(record))


def _others_on_console() -> bool:
    """Whether a library has added a console handler to the root logger."""
    return any(
        getattr(handler, "stream", None) in (sys.stderr, sys.stdout)
        for handler in logging.getLogger().handlers
    )
