"""The results of one reward for the samples of a call, and their timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mmrl.rewards.scoring.returned import Result
from mmrl.rewards.scoring.terms import Term
from mmrl.types import Sample


class Lot(NamedTuple):
    """Samples that were handed over together, and when."""

    column: TermScores
    samples: list[Sample]
    at: float


class TermScores:
    """Results of one reward in the order of the samples.

    Args:
        term: the reward.
        attempt: calls it; a failure is a result and not an exception.

    Attributes:
        results: so far.
        counted: how many of them were searched for failures.
        failures: how many of those have failed.
        first: the first failure as a line, and the exception behind it.
        error: a BaseException that the reward raised and that is no Exception.
        handed: how many samples were handed over.
        depth: the most samples that waited for their scores at the same time.
        work_s: seconds in calls.
        latency_s: seconds from handing over to the score, summed over samples.
    """

    def __init__(self, term: Term, attempt: Callable[[Term, list[Sample]], list[Result]]) -> None:
        self.term, self._attempt = term, attempt
        self.results: list[Result] = []
        self.counted = self.failures = self.handed = self.depth = 0
        self.first: tuple[str, Exception | None] = ("", None)
        self.error: BaseException | None = None
        self.work_s = self.latency_s = 0.0

    def hand_over(self, samples: Sequence[Sample]) -> Lot:
        """Take samples that wait for their scores from now on."""
        self.handed += len(samples)
        self.depth = max(self.depth, self.handed - len(self.results))
        return Lot(self, list(samples), time.perf_counter())

    def attempt(self, lots: Sequence[Lot]) -> list[Result]:
        """Call the reward with the samples of lots."""
        return self._attempt(self.term, [sample for lot in lots for sample in lot.samples])

    def call(self, samples: Sequence[Sample]) -> None:
        """Call the reward in this thread, and add its results."""
        lots, started = [self.hand_over(samples)], time.perf_counter()
        self.add_results(lots, self.attempt(lots), time.perf_counter() - started)

    def add_results(self, lots: Sequence[Lot], results: Sequence[Result], seconds: float) -> None:
        """Add the results of lots, and the seconds their call took."""
        now = time.perf_counter()
        self.work_s += seconds
        self.latency_s += sum((now - lot.at) * len(lot.samples) for lot in lots)
        self.results += results
