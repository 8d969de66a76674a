"""The results of a reward, and its failures: counted, logged with the sample, and too many of them
stop the run.

A failure is an exception, a wrong number of scores, or a score that is not a finite number. It
never becomes a zero.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from mmrl.rewards.scoring.returned import Failure, Result
from mmrl.rewards.scoring.terms import Term
from mmrl.types import Sample

logger = logging.getLogger(__name__)


class RewardError(RuntimeError):
    """A reward failed more often than the configuration allows."""


class TermScores:
    """Results of one reward in the order of the samples of a call; `attempt` calls it, where a
    failure is a result and not an exception. `failures` counts those of the results so far that
    were counted, and `error` is what the reward raised that is no Exception."""

    def __init__(self, term: Term, attempt: Callable[[Term, list[Sample]], list[Result]]) -> None:
        self.term, self._attempt = term, attempt
        self.results: list[Result] = []
        self.failures = 0
        self.error: BaseException | None = None
        self.seconds = 0.0

    def call(self, samples: Sequence[Sample]) -> None:
        """Call the reward with the next samples, and add its results."""
        started = time.perf_counter()
        results = self._attempt(self.term, list(samples))
        self.seconds += time.perf_counter() - started
        self.results += results


class Failures:
    """Counts the failures of each reward, `counts` by its key. `limit`: how much of one may fail:
    below 1 a share of the samples of one call, otherwise a number of samples over the whole run.
    With 0 the first failure is an error."""

    def __init__(self, limit: float) -> None:
        self.limit, self.counts = limit, Counter[str]()

    def count(self, column: TermScores, samples: Sequence[Sample], expected: int) -> None:
        """Count and log the failures among the results that were added since the last time, of the
        samples of a call that were handed over so far; `expected` is how many there will be. Raises
        RewardError: they are more than the limit."""
        key, done = column.term.key, len(column.results)
        pairs = zip(samples[:done], column.results[:done], strict=True)
        failed = [(sample, result) for sample, result in pairs if isinstance(result, Failure)]
        new, logged = failed[column.failures :], None
        column.failures = len(failed)
        self.counts[key] += len(new)
        for sample, problem in new:
            if problem is not logged:  # one of a call is that of all its samples
                line = _describe(sample, problem)
                logger.warning("reward %s failed on %s%s", key, line, problem.place)
            logged = problem
        if new and self._is_above_limit(column, expected):
            raise RewardError(
                f"reward {key!r} failed on {len(failed)} of {done} samples"
                f" ({self.counts[key]} in this run), max_failures is {self.limit:g}."
                f" First: {_describe(*failed[0])}. Correct the reward or its input, or raise"
                " max_failures (below 1: share of the samples of a process and step, otherwise a"
                " number per run) to leave such samples out."
            ) from failed[0][1].error

    def _is_above_limit(self, column: TermScores, expected: int) -> bool:
        if self.limit < 1:
            return column.failures > self.limit * expected
        return self.counts[column.term.key] > self.limit


def _describe(sample: Sample, problem: Failure) -> str:
    identity = f"{sample.id}: " if sample.id else ""
    return f"{identity}{sample.prompt[:80]!r}: {problem}"
