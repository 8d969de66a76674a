"""Samples of many requests, waiting to be scored together.

A batch is taken when it is full or when its oldest sample has waited long enough, whichever is
first; while a batch is being scored the next one gathers. Samples leave in the order they came.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from mmrl.types import Sample
from rewards.server.wire import Problem

Outcome = float | None | Problem
"""A score, None where the reward does not apply, or why there is none."""


class Ticket:
    """Samples of one request on their way through the queue.

    Attributes:
        outcomes: one per sample, in order, as far as it is known.
        done: resolved when all are known.
        dropped: set by who no longer waits; what is not scored yet is left out.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = list(samples)
        self.arrived = time.monotonic()
        self.outcomes: dict[int, Outcome] = {}
        self.done: Future[None] = Future()
        self.dropped = False
        if not self.samples:
            self.done.set_result(None)

    def settle(self, n: int, outcome: Outcome) -> None:
        """Note the outcome of sample `n`."""
        self.outcomes[n] = outcome
        if len(self.outcomes) == len(self.samples):
            self.done.set_result(None)


Place = tuple[Ticket, int]
"""One sample of a ticket."""


class Full(Exception):
    """No room for so many more samples."""


class Queue:
    """The samples that wait for one reward; one thread takes batches, others put tickets in.

    Args:
        max_batch_size: samples of a batch.
        max_latency: seconds the oldest sample waits for others.
        max_waiting: samples that may wait.
    """

    def __init__(self, max_batch_size: int, max_latency: float, max_waiting: int) -> None:
        self.max_batch_size, self.max_latency = max_batch_size, max_latency
        self.max_waiting = max_waiting
        self._places: deque[Place] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._places)

    def put(self, samples: Sequence[Sample]) -> Ticket:
        """Line up the samples of a request.

        Raises:
            Full: they are more than there is room for; none is taken.
        """
        ticket = Ticket(samples)
        with self._changed:
            if len(self._places) + len(samples) > self.max_waiting:
                raise Full
            self._places.extend((ticket, n) for n in range(len(samples)))
            self._changed.notify()
        return ticket

    def close(self) -> None:
        """Let `batches` end once nothing waits."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def batches(self) -> Iterator[list[Place]]:
        """Batches as they become due, until the queue is closed and empty."""
        while True:
            with self._changed:
                while (patience := self._patience()) > 0:
                    self._changed.wait(patience)
                if self._closed and not self._places:
                    return
                batch = self._batch()
            if batch:
                yield batch

    def _patience(self) -> float:
        """Seconds until the next batch is due."""
        if self._closed or len(self._places) >= self.max_batch_size:
            return 0.0
        if not self._places:
            return threading.TIMEOUT_MAX
        return self._places[0][0].arrived + self.max_latency - time.monotonic()

    def _batch(self) -> list[Place]:
        batch: list[Place] = []
        while self._places and len(batch) < self.max_batch_size:
            place = self._places.popleft()
            if not place[0].dropped:
                batch.append(place)
        return batch
