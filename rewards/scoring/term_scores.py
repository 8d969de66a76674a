"""The results of one reward for the samples of a call."""

import time
from collections.abc import Callable, Sequence

from mmrl.rewards.scoring.returned import Result
from mmrl.rewards.scoring.terms import Term
from mmrl.types import Sample


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
        seconds: in calls of the reward.
    """

    def __init__(self, term: Term, attempt: Callable[[Term, list[Sample]], list[Result]]) -> None:
        self.term, self._attempt = term, attempt
        self.results: list[Result] = []
        self.counted = self.failures = 0
        self.first: tuple[str, Exception | None] = ("", None)
        self.error: BaseException | None = None
        self.seconds = 0.0

    def call(self, samples: Sequence[Sample]) -> None:
        """Call the reward with the next samples, and add its results."""
        started = time.perf_counter()
        results = self._attempt(self.term, list(samples))
        self.seconds += time.perf_counter() - started
        self.results += results
