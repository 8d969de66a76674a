"""Threads that call rewards while the loop continues, one thread for each reward.

    with Overlap([scorer]):
        pending = scorer.begin(64)
        pending.add(samples)       # each time some are finished; rewards start on them at once
        scores = pending.scores()  # waits for the rest

One thread calls a reward, in the order in which samples were handed over, so a reward need not be
thread-safe. Samples that arrive during a call are scored together in the next one. Gradient mode
and autocast belong to a thread, so changes by a reward do not affect the loop.

At the end of a run the threads are stopped (`mmrl.rewards.http.stop`): requests to services end at
once, and the end of other calls is awaited for some seconds. The threads are daemons, so a call
that does not return does not keep the process alive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mmrl.rewards.http.stop import SIGNAL, Stopped
from mmrl.rewards.scoring.failures import RewardError, TermScores
from mmrl.types import Sample

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Longest wait in seconds for calls of rewards at the end of a run."""

PATIENCE_STOPPED = 2.0
"""The same after Ctrl-C and errors."""

POLL = 0.2
"""Seconds between two calls of `poll`."""


class Overlap:
    """A context in which threads call the rewards of the `scorers` of one run, whose `overlap` it
    sets: one for a reward, also where several hold it. Everything except these calls happens in the
    thread that entered it.

    Without `enabled` rewards are called when their scores are needed, without threads. `poll` is
    called every `POLL` seconds while scores are awaited, with the number of calls of rewards that
    have ended; an exception ends the wait. `limit` is the longest time in seconds that a call may
    take."""

    def __init__(
        self,
        scorers: Sequence[Any],
        enabled: bool = True,
        poll: Callable[[int], None] = lambda ended: None,
        limit: float = float("inf"),
    ) -> None:
        self.scorers, self.poll, self.limit = scorers if enabled else (), poll, limit
        self.checks: list[Callable[[], None]] = []  # raise for failures
        self.changed = threading.Condition()
        self.ended_calls = 0  # calls of rewards that have ended
        self._workers: dict[int, _Worker] = {}

    def __enter__(self) -> Overlap:
        for scorer in self.scorers:
            scorer.overlap = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for scorer in self.scorers:
            scorer.overlap = None
        self._end(PATIENCE if kind is None else PATIENCE_STOPPED)

    def put(self, column: TermScores, samples: Sequence[Sample]) -> None:
        """Hand samples over to the reward of a column."""
        reward = column.term.reward
        if id(reward) not in self._workers:
            self._workers[id(reward)] = _Worker(column.term.key, self)
        with self.changed:
            self._workers[id(reward)].lots.append((column, samples))
            self.changed.notify_all()

    def check(self) -> None:
        """Count the failures since the last check, of all samples that were handed over. Raises
        RewardError: see `Failures.count`. Raises BaseException: a reward raised it, and it is no
        Exception."""
        for check in list(self.checks):
            check()

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until `done` is true; it is asked again when a call of a reward ends. Raises
        RewardError: see `check`, at the first failure above the limit; or a call of a reward does
        not end."""
        while True:
            ended = self.ended_calls
            finished = done()
            self.check()
            if finished:
                return
            with self.changed:
                self.changed.wait_for(lambda before=ended: self.ended_calls > before, POLL)
            self.poll(ended)
            self._check_deadline()

    def _check_deadline(self) -> None:
        for worker in self._workers.values():
            taken = time.monotonic() - (worker.since or float("inf"))
            if taken > self.limit:
                raise RewardError(
                    f"{worker.thread.name} has not returned for {taken:.0f} s. Raise ddp_timeout if"
                    " it only needs longer; run again with resume_from_checkpoint=auto."
                )

    def _end(self, longest: float) -> None:
        with self.changed:
            for worker in self._workers.values():
                worker.stop()
            self.changed.notify_all()
        until = time.monotonic() + longest
        for worker in self._workers.values():
            worker.thread.join(max(0.0, until - time.monotonic()))
        left = [w.thread.name for w in self._workers.values() if w.thread.is_alive()]
        if left:
            text = "after %.0f s a call of %s has not ended; it ends with this process"
            logger.warning(text, longest, " and ".join(left))


class _Worker:
    """The thread of one reward and the samples that wait for it."""

    def __init__(self, name: str, overlap: Overlap) -> None:
        import torch

        self.lots: deque[tuple[TermScores, Sequence[Sample]]] = deque()
        self.since: float | None = None  # when the present call of the reward began
        self._stopped = threading.Event()
        self._overlap = overlap
        # the current device belongs to a thread, and a new one starts with the first
        found = torch.accelerator.is_available()
        self._device = torch.accelerator.current_device_index() if found else None
        self.thread = threading.Thread(target=self._work, name=f"reward {name}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Drop the samples that wait, and tell a call to stop."""
        self._stopped.set()
        self.lots.clear()

    def _work(self) -> None:
        SIGNAL.set(self._stopped)
        with suppress(Stopped):
            while found := self._next():
                self._score(*found)

    def _next(self) -> tuple[TermScores, list[Sample]] | None:
        """All samples that wait for one column; None at the end."""
        with self._overlap.changed:
            self._overlap.changed.wait_for(lambda: self.lots or self._stopped.is_set())
            if not self.lots:
                return None
            column, samples = self.lots[0][0], list[Sample]()
            while self.lots and self.lots[0][0] is column:
                samples += self.lots.popleft()[1]
            return column, samples

    def _score(self, column: TermScores, samples: Sequence[Sample]) -> None:
        import torch

        self.since = time.monotonic()
        try:
            if self._device is not None:
                torch.accelerator.set_device_index(self._device)
            column.call(samples)
        except Stopped:
            raise
        except BaseException as error:  # the loop raises it again
            column.error = error
        with self._overlap.changed:
            self._overlap.ended_calls += 1
            self.since = None
            self._overlap.changed.notify_all()
