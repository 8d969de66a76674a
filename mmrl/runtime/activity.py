"""Progress of a command, reported by its loops and shown every few seconds.

    with Display():                      # the command
        with activity("rollouts", 128):  # a phase; phases may be nested
            for batch in batches:
                advance(len(batch))

On a terminal it is a bar of tqdm, elsewhere (a file, CI) a line after `SILENCE` seconds without
one. A thread shows it, so that long operations do not delay it, and ends a process that makes no
progress. `watch` lets a profiler measure the phases.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

from mmrl.runtime.interrupt import check, end_at_once

Watcher = Callable[[str], AbstractContextManager[Any]]
"""Opens a context around a phase of this name."""

SILENCE = 3.5
"""Seconds without a line after which one is written without a terminal."""

REFRESH = 0.5
"""Seconds between two updates of the bar, and two checks of the progress."""

_display: ContextVar[Display | None] = ContextVar("display", default=None)
_watcher: ContextVar[Watcher] = ContextVar("watcher", default=lambda _: nullcontext())


class Activity:
    """A phase: how much of it is done, and a remark that is shown with it. A run ends in which one
    that is `timed` makes no progress."""

    def __init__(self, name: str, total: int = 0, done: int = 0, timed: bool = True) -> None:
        self.name, self.total, self.timed, self.remark = name, total, timed, ""
        self.done = self.before = done
        self.started = self.moved = time.monotonic()

    def reach(self, done: int) -> None:
        """Set the number that is done."""
        self.done, self.moved = done, time.monotonic()

    def __str__(self) -> str:
        count = f"{self.done}/{self.total}" if self.total else f"{_since(self.started):.0f}s"
        return f"{self.name} {count} {self.remark}".rstrip()

    def bar(self, within: str, columns: int | None) -> str:
        """A bar with the rate of this process, and the activities `within` this one; with 0
        `columns` without what moves, with None as wide as the terminal."""
        here, spent = self.done - self.before, self.moved - self.started
        return tqdm.format_meter(
            self.done,
            self.total,
            _since(self.started),
            ncols=columns,
            initial=self.before,
            prefix=self.name,
            unit=self.name,
            rate=here / spent if here and spent else None,
            postfix=", ".join(filter(None, (self.remark, within))),
        )


class Display:
    """While open, shows the activities of the thread that opened it on standard error, in the first
    launched process alone.

    Attributes:
        limit: seconds without progress after which the process ends, with the calls of all its
            threads on standard error. The launcher then ends the others and names its rank.
    """

    written = 0.0
    """Time of the last written line."""

    def __init__(self) -> None:
        self.shown = os.environ.get("RANK", "0") == "0"
        self.stack: list[Activity] = []
        self.moved, self.limit = time.monotonic(), float("inf")
        self._closed = threading.Event()

    @property
    def idle(self) -> float:
        """Seconds since a phase began, ended or made progress; 0 in one that is not timed."""
        stack = list(self.stack)
        timed = all(one.timed for one in stack)
        return _since(max([self.moved, *(one.moved for one in stack)])) if timed else 0.0

    def __enter__(self) -> Display:
        self._token = _display.set(self)
        silent = not (self.shown and sys.stderr.isatty())
        self._line = tqdm(bar_format="{desc}", disable=silent, leave=False, dynamic_ncols=True)
        self._thread = threading.Thread(target=self._accompany, name="display", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _display.reset(self._token)
        self._closed.set()
        self._thread.join()
        self._line.close()

    def _accompany(self) -> None:
        while not self._closed.wait(REFRESH):
            if self.idle > self.limit:
                return self._end_run()
            try:
                self._show(list(self.stack))
            except OSError:  # the reader has closed; the work continues without output
                self.shown = False

    def _show(self, stack: list[Activity]) -> None:
        if self.shown and not self._line.disable:
            self._line.set_description_str(_describe(stack, None))
        elif self.shown and stack and _since(Display.written) > SILENCE:
            write(_describe(stack, 0))

    def _end_run(self) -> None:
        said = (
            f"\nerror: rank {os.environ.get('RANK', '0')} has made no progress for"
            f" {self.idle:.0f} s in '{', '.join(map(str, list(self.stack)))}'; its calls follow."
            " Raise ddp_timeout if they only need longer, and run again with"
            " resume_from_checkpoint=auto.\n"
        )
        os.write(2, said.encode())  # not through a stream that another thread may hold
        faulthandler.dump_traceback(2, all_threads=True)
        end_at_once(1)


def write(text: str) -> None:
    """Write a line to standard error, above a progress bar."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()
    Display.written = time.monotonic()


@contextmanager
def activity(name: str, total: int = 0, done: int = 0, timed: bool = True) -> Iterator[Activity]:
    """Report a phase, such as `rollouts`, of `total` items, 0 where they are not counted, of which
    a resumed run has `done` some before; inside another activity it is a part of that. A phase that
    is not `timed`, such as a download, may take any time."""
    mine, display = Activity(name, total, done, timed), _display.get() or Display()
    display.stack.append(mine)
    try:
        with _watcher.get()(name):
            yield mine
    except RuntimeError as error:
        error.phases = (*getattr(error, "phases", ()), name)  # type: ignore[attr-defined]
        raise
    finally:
        display.moved = time.monotonic()
        display.stack[:] = [one for one in display.stack if one is not mine]


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Open the watcher's context around every phase of this thread inside the context."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def advance(count: int = 1) -> None:
    """Count items of the current activity as done; the phase may be left here. Raises Interrupted:
    a stop is requested, see `mmrl.runtime.interrupt.leave_together`."""
    display = _display.get()
    if count and display is not None and display.stack:
        display.stack[-1].reach(display.stack[-1].done + count)
    check()


def reach(done: int) -> None:
    """Set the number that is done of the current activity; the phase may be left here. Raises
    Interrupted: as `advance`."""
    display = _display.get()
    advance(done - display.stack[-1].done if display is not None and display.stack else 0)


def end_when_idle(seconds: float) -> None:
    """End this process where its command makes no progress for that long, see `Display`."""
    if (display := _display.get()) is not None:
        display.limit = seconds


@contextmanager
def with_display() -> Iterator[None]:
    """Open a display while a function runs; a decorator."""
    with Display():
        yield


def _since(moment: float) -> float:
    return time.monotonic() - moment


def _describe(stack: list[Activity], columns: int | None) -> str:
    """A bar of the first activity that is counted, beside those inside it."""
    for n, one in enumerate(stack):
        if one.total:
            return one.bar(", ".join(map(str, stack[n + 1 :])), columns)
    return ", ".join(map(str, stack))
