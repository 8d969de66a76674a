"""Threads that call rewards while the loop does something else, one thread for each reward.

    with Overlap([scorer]):
        pending = scorer.begin(64)
        pending.add(samples)       # as often as some are finished; rewards start on them at once
        scores = pending.scores()  # waits for the rest

A reward is called by one thread, in the order in which samples were handed over: it need not be
safe to call from several. What has come in since its last call is one call, so a slow reward sees
few large batches. Gradient mode, autocast and the like belong to a thread, so what a reward sets
does not reach the loop. A reward with `in_step` has no thread (see `rewards.InStep`).
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from mmrl.types import Sample
from rewards.scoring.column import Column, Lot

if TYPE_CHECKING:
    from rewards.scoring.pending import Pending
    from rewards.scoring.scorer import Scorer

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds the end of a run waits for calls of rewards that it broke off."""

PATIENCE_STOPPED = 2.0
"""The same after Ctrl-C."""

POLL = 0.2
"""Seconds between two calls of `poll`."""


class Stopped(BaseException):
    """Breaks off the call of a reward in its thread, as Ctrl-C does in the main one."""


class Overlap:
    """While open, the rewards of some scorers work in threads of their own.

    Everything but the calls of rewards happens in the thread that opened it.

    Args:
        scorers: of one run. A reward that several of them hold has one thread.
        enabled: without it nothing changes, and rewards are called when their scores are needed.
        poll: called again and again while scores are awaited; what it raises ends the waiting.
    """

    def __init__(
        self,
        scorers: Sequence[Scorer],
        enabled: bool = True,
        poll: Callable[[], None] = lambda: None,
    ) -> None:
        self.scorers, self.poll = scorers if enabled else (), poll
        self.pending: list[Pending] = []
        self.changed = threading.Condition()
        self.settled = 0  # calls of rewards that have ended
        self._workers: dict[int, Worker] = {}

    def __enter__(self) -> Overlap:
        for scorer in self.scorers:
            scorer.overlap = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for scorer in self.scorers:
            scorer.overlap = None
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._end(PATIENCE_STOPPED if stopped else PATIENCE)

    def put(self, column: Column, samples: Sequence[Sample]) -> None:
        """Let the reward of a column score samples after those it has."""
        reward = column.term.reward
        if id(reward) not in self._workers:
            self._workers[id(reward)] = Worker(column.term.key, self)
        with self.changed:
            self._workers[id(reward)].lots.append(column.hand_over(samples))
            self.changed.notify_all()

    def check(self) -> None:
        """Count what has failed since the last time, whatever it was handed over for.

        Raises:
            RewardError: see `Scorer.account`; and anything but an Exception that a reward raised.
        """
        for pending in list(self.pending):
            pending.account()

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, which changes when a call of a reward ends.

        Raises:
            RewardError: see `check`; as soon as it is known.
        """
        while True:
            settled = self.settled
            finished = done()
            self.check()
            if finished:
                return
            with self.changed:
                self.changed.wait_for(lambda before=settled: self.settled > before, POLL)
            self.poll()

    def _end(self, longest: float) -> None:
        with self.changed:
            for worker in self._workers.values():
                worker.stop()
            self.changed.notify_all()
        for patience in (1.0, longest):
            until = time.monotonic() + patience
            for worker in self._workers.values():
                worker.thread.join(max(0.0, until - time.monotonic()))
            left = [w.thread.name for w in self._workers.values() if w.thread.is_alive()]
            if not left:
                return
            text = (
                "waiting at most %.0f s for a call of %s to end"
                if patience < longest
                else ("after %.0f s a call of %s has not ended; it ends with this process")
            )
            logger.warning(text, longest, " and ".join(left))


class Worker:
    """The thread of one reward and the samples that wait for it."""

    def __init__(self, name: str, overlap: Overlap) -> None:
        self.lots: deque[Lot] = deque()
        self.closed = self.calling = False
        self._overlap = overlap
        # the current device belongs to a thread; a new one has the first
        here = torch.accelerator.is_available()
        self._device = torch.accelerator.current_device_index() if here else None
        # daemon: a call that cannot be broken off must not keep the process
        self.thread = threading.Thread(target=self._work, name=f"reward {name}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Leave out what waits, and break off a call under way as soon as it runs Python code."""
        self.closed = True
        self.lots.clear()
        if self.calling:
            thread = ctypes.c_ulong(self.thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))

    def _work(self) -> None:
        try:
            while lots := self._taken():
                self._score(lots)
        except Stopped:
            return

    def _taken(self) -> list[Lot]:
        """All that waits for one column; nothing at the end."""
        with self._overlap.changed:
            self._overlap.changed.wait_for(lambda: self.lots or self.closed)
            taken: list[Lot] = []
            while self.lots and (not taken or self.lots[0].column is taken[0].column):
                taken.append(self.lots.popleft())
            self.calling = bool(taken)
            return taken

    def _score(self, lots: list[Lot]) -> None:
        column, results, started = lots[0].column, [], time.perf_counter()
        try:
            if self._device is not None:
                torch.accelerator.set_device_index(self._device)
            results = column.attempt([sample for lot in lots for sample in lot.samples])
        except Stopped:
            raise
        except BaseException as error:  # the loop raises it again
            column.error = error
        self.calling = False
        with self._overlap.changed:
            column.settle(lots, results, time.perf_counter() - started)
            self._overlap.settled += 1
            self._overlap.changed.notify_all()
