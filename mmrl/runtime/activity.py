"""Progress of a command, reported by its loops and shown at least every few seconds.

    with Display():                      # the command
        with activity("rollouts", 128):  # a phase; phases may be nested
            for batch in batches:
                advance(len(batch))

On a terminal it is a progress bar. Elsewhere (a file, CI) it is a line of text after `SILENCE`
seconds without one. A thread shows it, so that long operations do not delay it.

`watch` lets a profiler measure the phases.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tqdm import tqdm

from mmrl.runtime.interrupt import check

P = ParamSpec("P")
R = TypeVar("R")
Watcher = Callable[[str], AbstractContextManager[Any]]
"""Opens a context around a phase of this name."""

SILENCE = 3.5
"""Seconds without a line after which one is written without a terminal."""

REFRESH = 0.5
"""Seconds between two updates of the bar."""

_display: ContextVar[Display | None] = ContextVar("display", default=None)
_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@dataclass
class Activity:
    """A phase: how much of it is done, and a remark that is shown with it.

    Attributes:
        timed: whether a watchdog ends a run in which the phase makes no progress.
    """

    name: str
    total: int = 0
    done: int = 0
    remark: str = ""
    timed: bool = True
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.before, self.moved = self.done, self.started

    def reach(self, done: int) -> None:
        """Set the number that is done."""
        self.done, self.moved = done, time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.started

    @property
    def each(self) -> float:
        """Mean seconds of one, over those done in this process; 0 before the first."""
        here = self.done - self.before
        return (self.moved - self.started) / here if here else 0.0

    def __str__(self) -> str:
        if not self.total:
            return f"{self.name} {self.seconds:.0f}s"
        text, each = f"{self.name} {self.done}/{self.total}", self.each
        if each and self.seconds > 2:
            rate = f"{1 / each:.1f}/s" if each < 1 else f"{each:.1f}s each"
            # the time since the last one is part of the next
            left = each * (self.total - self.done) - (time.monotonic() - self.moved)
            text += f" ({rate}, {tqdm.format_interval(max(0, left))} left)"
        return f"{text} {self.remark}".rstrip()

    def bar(self, within: str) -> str:
        """The bar for a terminal, with the activities inside this one."""
        beside = ", ".join(text for text in (self.remark, within) if text)
        return tqdm.format_meter(
            self.done,
            self.total,
            self.seconds,
            initial=self.before,
            prefix=self.name,
            unit=self.name,
            rate=1 / self.each if self.each else None,
            postfix=beside,
        )


class Display:
    """While open, shows the activities of the thread that opened it on standard error.

    Args:
        shown: whether this process shows them; None for the first launched process alone.
    """

    written = 0.0
    """Time of the last written line."""

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = os.environ.get("RANK", "0") == "0" if shown is None else shown
        self.stack: list[Activity] = []
        self.begun = self.moved = time.monotonic()
        self._closed = threading.Event()

    @property
    def idle(self) -> float:
        """Seconds since a phase began, ended or made progress; 0 in one that is not timed."""
        stack = list(self.stack)
        if not all(one.timed for one in stack):
            return 0.0
        return time.monotonic() - max([self.moved, *(one.moved for one in stack)])

    def __enter__(self) -> Display:
        self._token = _display.set(self)
        terminal = sys.stderr.isatty()
        self._line = tqdm(
            bar_format="{desc}",
            disable=not (self.shown and terminal),
            leave=False,
            dynamic_ncols=True,
        )
        self._thread = threading.Thread(target=self._show, name="display", daemon=True)
        if self.shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        _display.reset(self._token)
        self._closed.set()
        if self.shown:
            self._thread.join()
        self._line.close()

    def _show(self) -> None:
        try:
            while not self._closed.wait(REFRESH):
                stack = list(self.stack)
                if not self._line.disable:
                    self._line.set_description_str(_bar(stack))
                elif stack and time.monotonic() - Display.written > SILENCE:
                    write(", ".join(map(str, stack)))
        except OSError:  # the reader has closed; the work continues without output
            return


def write(text: str) -> None:
    """Write a line to standard error, above a progress bar."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()
    Display.written = time.monotonic()


@contextmanager
def activity(name: str, total: int = 0, done: int = 0, timed: bool = True) -> Iterator[Activity]:
    """Report a phase; inside another activity it is a part of that.

    Args:
        name: such as `rollouts`.
        total: number of items; 0 where they are not counted.
        done: number done before the start, as in a resumed run.
        timed: False for a phase that may take any time, such as a download.
    """
    mine, display = Activity(name, total, done, timed=timed), _display.get()
    with ExitStack() as watched:
        for watcher in _watchers.get():
            watched.enter_context(watcher(name))
        if display is None:
            yield mine
            return
        display.stack.append(mine)
        try:
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
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def advance(count: int = 1) -> None:
    """Count items of the current activity as done; the phase may be left here.

    Raises:
        Interrupted: a stop is requested, see `mmrl.runtime.interrupt.leave_together`.
    """
    display = _display.get()
    if display is not None and display.stack:
        display.stack[-1].reach(display.stack[-1].done + count)
    check()


def reach(done: int) -> None:
    """Set the number that is done of the current activity; the phase may be left here.

    Raises:
        Interrupted: as `advance`.
    """
    display = _display.get()
    if display is not None and display.stack and display.stack[-1].done != done:
        display.stack[-1].reach(done)
    check()


def current_display() -> Display | None:
    """The display that is open in this thread."""
    return _display.get()


def with_display(work: Callable[P, R]) -> Callable[P, R]:
    """Open a display while the function runs; a decorator."""

    @wraps(work)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        with Display():
            return work(*args, **kwargs)

    return shown


def _bar(stack: list[Activity]) -> str:
    counted = next((n for n, one in enumerate(stack) if one.total), None)
    if counted is None:
        return ", ".join(map(str, stack))
    return stack[counted].bar(", ".join(map(str, stack[counted + 1 :])))
