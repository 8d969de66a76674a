"""Samples that several rewards score: handed over in parts, then awaited."""

import time
from collections.abc import Sequence

from mmrl.rewards.registry.interface import in_step
from mmrl.rewards.scoring.failures import Failures, TermScores
from mmrl.rewards.scoring.overlap import Overlap
from mmrl.rewards.scoring.reward_scores import RewardScores, combine
from mmrl.types import Sample


class Pending:
    """Samples of one call that are handed over as they are finished.

    Args:
        columns: one per reward.
        failures: counts those of the run.
        expected: how many samples there will be; a failure limit below 1 is a share of them.
        in_chunks: whether a reward judges chunks.
        overlap: the threads of rewards; None if `scores` calls the rewards.
    """

    def __init__(
        self,
        columns: Sequence[TermScores],
        failures: Failures,
        expected: int,
        in_chunks: bool,
        overlap: Overlap | None,
    ) -> None:
        self.columns, self.failures, self.expected = columns, failures, expected
        self.in_chunks, self.overlap = in_chunks, overlap
        self.samples: list[Sample] = []
        self._called_here = [c for c in columns if overlap is None or in_step(c.term.reward)]
        if overlap is not None:
            overlap.checks.append(self.check)

    def add(self, samples: Sequence[Sample]) -> None:
        """Hand over the next samples.

        Raises:
            RewardError: a reward has failed more often than allowed by now.
        """
        self.samples += samples
        if self.overlap is None:
            return
        for column in self.columns if samples else ():
            if column not in self._called_here:
                self.overlap.put(column, samples)
        self.overlap.check()

    def check(self) -> None:
        """Count the failures since the last check; see `Failures.count`."""
        for column in self.columns:
            if column.error is not None:
                raise column.error
            self.failures.count(column, self.samples, self.expected)

    def scores(self) -> RewardScores:
        """Wait for the scores of all samples. Called once, after the last hand-over.

        Raises:
            RewardError: a reward failed more often than allowed.
        """
        started = time.perf_counter()
        for column in self._called_here:
            column.call(self.samples)
            self.check()
        if self.overlap is not None:
            count = len(self.samples)
            self.overlap.wait(lambda: all(len(c.results) == count for c in self.columns))
            self.overlap.checks.remove(self.check)
        return combine(self.columns, self.in_chunks, time.perf_counter() - started)
