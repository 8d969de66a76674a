"""Samples on their way through the rewards of a scorer: handed over in parts, then awaited."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mmrl.types import Sample
from rewards import in_step
from rewards.scoring.column import Column

if TYPE_CHECKING:
    from rewards.scoring.overlap import Overlap
    from rewards.scoring.scorer import Scorer, Scores


@dataclass
class Timing:
    """How long rewards took.

    Attributes:
        work_s: seconds in calls of rewards, summed over them.
        wait_s: seconds in which nothing else was done, for scores or in calls.
        latency_s: by reward key, mean seconds from handing a sample over to its score.
        queue: by reward key, the most samples that were handed over and not yet scored.
    """

    work_s: float = 0.0
    wait_s: float = 0.0
    latency_s: dict[str, float] = field(default_factory=dict)
    queue: dict[str, int] = field(default_factory=dict)


class Pending:
    """Samples of one call that are handed over as they are finished.

    Args:
        scorer: its rewards.
        expected: how many samples there will be; a `max_failures` below 1 is a share of them.
        overlap: the threads of rewards; None where rewards are called by `scores`.
    """

    def __init__(self, scorer: Scorer, expected: int, overlap: Overlap | None) -> None:
        self.scorer, self.expected, self.overlap = scorer, expected, overlap
        self.samples: list[Sample] = []
        self.columns = [Column(term, scorer.attempt) for term in scorer.terms]
        self._called_here = [c for c in self.columns if overlap is None or in_step(c.term.reward)]
        if overlap is not None:
            overlap.pending.append(self)

    def add(self, samples: Sequence[Sample]) -> None:
        """Hand over the next samples.

        Raises:
            RewardError: a reward has by now failed more often than `max_failures` allows.
        """
        self.samples += samples
        if self.overlap is None:
            return
        for column in self.columns if samples else ():
            if column not in self._called_here:
                self.overlap.put(column, samples)
        self.overlap.check()

    def account(self) -> None:
        """Count what has failed since the last time; see `Scorer.account`."""
        for column in self.columns:
            if column.error is not None:
                raise column.error
            self.scorer.account(column, self.samples, self.expected)

    def scores(self) -> Scores:
        """The scores of all samples; to be asked for once, when the last was handed over.

        Raises:
            RewardError: a reward failed more often than `max_failures` allows.
        """
        started = time.perf_counter()
        for column in self._called_here:
            self._call(column)
            self.account()
        if self.overlap is not None:
            self.overlap.wait(lambda: all(len(c.results) == c.handed for c in self.columns))
            self.overlap.pending.remove(self)
        return self.scorer.combined(self.columns, self._timing(time.perf_counter() - started))

    def _call(self, column: Column) -> None:
        lot, started = column.hand_over(self.samples), time.perf_counter()
        results = column.attempt(lot.samples)
        column.settle([lot], results, time.perf_counter() - started)

    def _timing(self, wait_s: float) -> Timing:
        number = max(1, len(self.samples))
        return Timing(
            sum(column.work_s for column in self.columns),
            wait_s,
            {column.term.key: column.latency_s / number for column in self.columns},
            {column.term.key: column.depth for column in self.columns},
        )
