"""The scores of a batch: the weighted sum of its rewards, and its parts.

    total_i = sum over applicable rewards r of  weight_r * (scale_r * score_ri + offset_r)

None ("not applicable") is left out of the sum, as in TRL. A reward that judges the chunks of a
completion adds a term for every chunk; `chunks` has the sums chunk by chunk.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mmrl.rewards.scoring.failures import TermScores
from mmrl.rewards.scoring.returned import Failure, Result
from mmrl.rewards.scoring.terms import Term


@dataclass
class RewardScores:
    """Scores of a batch of samples: by reward key the raw scores (`components`), one per sample,
    the mean over its chunks if those are judged, NaN where the reward does not apply or failed;
    whether it failed; and how long its calls took.

    `total` are the weighted sums, None where no reward applies; `chunks` the share of each chunk of
    a sample in it, [] if its chunks are not judged, None if no reward judges chunks; `wait_s`
    seconds in which the loop waited for scores or called rewards itself."""

    components: dict[str, list[float]]
    failed: dict[str, list[bool]]
    total: list[float | None]
    chunks: list[list[float]] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    wait_s: float = 0.0

    def add(self, key: str, values: Sequence[float | None]) -> None:
        """Add a reward that is known from elsewhere, as it counts; None where it does not apply."""
        self.components[key] = [math.nan if value is None else value for value in values]
        self.failed[key], self.seconds[key] = [False] * len(values), 0.0
        pairs = zip(self.total or [None] * len(values), values, strict=True)
        self.total = [a if b is None else b if a is None else a + b for a, b in pairs]

    def outcomes(self) -> list[float]:
        """The share of `total` that belongs to no chunk; NaN where no reward applies."""
        shares = self.chunks or [[] for _ in self.total]
        return [
            math.nan if total is None else total - math.fsum(chunks)
            for total, chunks in zip(self.total, shares, strict=True)
        ]


def combine(columns: Sequence[TermScores], in_chunks: bool, wait_s: float) -> RewardScores:
    """The scores of a batch from the results of all its rewards, a column of each; `in_chunks`: a
    reward judges chunks; `wait_s`: seconds that the loop waited."""
    results = {column.term.key: column.results for column in columns}
    terms = [column.term for column in columns]
    rows = zip(*results.values(), strict=True)
    sums = [_sums(zip(terms, row, strict=True)) for row in rows]
    return RewardScores(
        {key: [_raw(result) for result in found] for key, found in results.items()},
        {key: [isinstance(r, Failure) for r in found] for key, found in results.items()},
        [total for total, _ in sums],
        [chunks for _, chunks in sums] if in_chunks else None,
        {column.term.key: column.seconds for column in columns},
        wait_s,
    )


def _sums(row: Iterable[tuple[Term, Result]]) -> tuple[float | None, list[float]]:
    """The weighted sum of one sample, and the share of each of its chunks."""
    whole: list[float] = []
    chunks: list[list[float]] = []
    for term, result in row:
        if isinstance(result, list):
            chunks.append([term.contribution(score) for score in result])
        elif isinstance(result, float):
            whole.append(term.contribution(result))
    shares = [math.fsum(column) for column in zip(*chunks, strict=True)]
    return math.fsum([*whole, *shares]) if whole or chunks else None, shares


def _raw(result: Result) -> float:
    """The number that is logged for a result."""
    if isinstance(result, list):
        return statistics.fmean(result) if result else math.nan
    return result if isinstance(result, float) else math.nan
