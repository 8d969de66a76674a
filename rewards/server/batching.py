"""Samples of many requests, waiting to be scored together.

A batch is complete when it is full or when its oldest sample has waited long enough. While a batch
is being scored, the next one fills. Samples are scored in the order of their arrival.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from mmrl.rewards.server.wire import Problem
from mmrl.types import Sample

Outcome = float | None | Problem
"""A score, None where the reward does not apply, or why there is none."""


class Ticket:
    """Samples of one request on their way through the queue.

    Attributes:
        outcomes: by the number of the sample, as far as they are known.
        done: resolved when all are known.
        dropped: set when nobody waits any more; samples without a score are skipped then.
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
    """The queue has no room for these samples."""


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
        """Add the samples of a request.

        Raises:
            Full: there is no room for all of them; none is added.
        """
        ticket = Ticket(samples)
        with self._changed:
            if len(self._places) + len(samples) > self.max_waiting:
                raise Full
            self._places.extend((ticket, n) for n in range(len(samples)))
            self._changed.notify()
        return ticket

    def close(self) -> None:
        """End `batches` once the queue is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def batches(self) -> Iterator[list[Place]]:
        """Yield batches when they are due, until the queue is closed and empty."""
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
