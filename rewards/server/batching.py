"""Samples of many requests, waiting to be scored together.

A batch is complete when it is full or when its oldest sample has waited long enough. While a batch
is being scored, the next one fills. Samples are scored in the order of their arrival.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from mmrl.rewards.server.wire import Outcome
from mmrl.types import Sample


class Place(NamedTuple):
    """A sample that waits, when it came, and its outcome; a cancelled one is left out."""

    sample: Sample
    arrived: float
    outcome: asyncio.Future[Outcome]


class Queue:
    """The samples that wait for one reward.

    Args:
        max_batch_size: samples of a batch.
        max_latency: seconds the oldest sample waits for others.
    """

    def __init__(self, max_batch_size: int, max_latency: float) -> None:
        self.max_batch_size, self.max_latency = max_batch_size, max_latency
        self._places: deque[Place] = deque()
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._places)

    def put(self, samples: Sequence[Sample]) -> list[asyncio.Future[Outcome]]:
        """Add samples; the outcomes that they will have."""
        loop = asyncio.get_running_loop()
        places = [Place(sample, loop.time(), loop.create_future()) for sample in samples]
        self._places.extend(places)
        self._came.set()
        return [place.outcome for place in places]

    async def next_batch(self) -> list[Place]:
        """The next batch, when it is due; it is empty if nobody waits for its samples any more."""
        while (patience := self._patience()) > 0:
            self._came.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._came.wait(), min(patience, 3600))
        count = min(self.max_batch_size, len(self._places))
        taken = [self._places.popleft() for _ in range(count)]
        return [place for place in taken if not place.outcome.done()]

    def _patience(self) -> float:
        """Seconds until the next batch is due."""
        if not self._places or len(self._places) >= self.max_batch_size:
            return 0.0 if self._places else math.inf
        return self._places[0].arrived + self.max_latency - asyncio.get_running_loop().time()
