"""What one reward makes of the samples of a call, part by part, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mmrl.types import Sample
from rewards.scoring.results import Result
from rewards.scoring.terms import Term


class Lot(NamedTuple):
    """Samples that were handed over together, and when."""

    column: Column
    samples: list[Sample]
    at: float


class Column:
    """Results of one reward in the order of the samples.

    Args:
        term: the reward.
        attempt: calls it; never raises for a failure of its own.

    Attributes:
        results: so far.
        accounted: how many of them have been looked at for failures.
        failures: how many of those have failed.
        first: the first failure as a line, and what raised it.
        error: what else than an Exception the reward raised.
        handed: how many samples were handed over.
        depth: the most that were handed over and not yet scored.
        work_s: seconds in calls.
        latency_s: seconds from handing over to the score, summed over samples.
    """

    def __init__(self, term: Term, attempt: Callable[[Term, list[Sample]], list[Result]]) -> None:
        self.term, self._attempt = term, attempt
        self.results: list[Result] = []
        self.accounted = self.failures = self.handed = self.depth = 0
        self.first: tuple[str, Exception | None] = ("", None)
        self.error: BaseException | None = None
        self.work_s = self.latency_s = 0.0

    def hand_over(self, samples: Sequence[Sample]) -> Lot:
        """Count samples as waiting from now on."""
        self.handed += len(samples)
        self.depth = max(self.depth, self.handed - len(self.results))
        return Lot(self, list(samples), time.perf_counter())

    def attempt(self, samples: list[Sample]) -> list[Result]:
        """Call the reward."""
        return self._attempt(self.term, samples)

    def settle(self, lots: Sequence[Lot], results: Sequence[Result], seconds: float) -> None:
        """Add the results of lots, and the seconds their call took."""
        now = time.perf_counter()
        self.work_s += seconds
        self.latency_s += sum((now - lot.at) * len(lot.samples) for lot in lots)
        self.results += results
