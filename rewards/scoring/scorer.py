"""The weighted sum of several rewards, and what happens when one of them fails.

    total_i = sum over applicable rewards r of  weight_r * (scale_r * score_ri + offset_r)

None ("not applicable") is left out of the sum, as in TRL. A reward that judges the chunks of a
completion adds its term for every chunk, and `chunks` has these sums chunk by chunk. A failure is
an exception, a wrong number of scores, or a score that is not a finite number: it is counted,
logged with the sample, and stops the run above a limit. It never becomes a zero.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from mmrl.config import ConfigError
from mmrl.types import Cutting, Prompt, Sample
from rewards import ChecksMetadata, CutsCompletions, PartialFailure, Served
from rewards.http.errors import Unreachable
from rewards.scoring.column import Column
from rewards.scoring.pending import Pending, Timing
from rewards.scoring.results import Problem, Result, validated
from rewards.scoring.terms import Term, build_term, check_entries

if TYPE_CHECKING:
    from rewards.scoring.overlap import Overlap

logger = logging.getLogger(__name__)

NETWORK_ERRORS = (ConnectionError, TimeoutError, URLError)


class RewardError(RuntimeError):
    """A reward failed more often than the configuration allows."""


@dataclass
class Scores:
    """Scores of a batch of samples.

    Attributes:
        components: raw scores per reward key, one per sample; the mean over its chunks where they
            are judged; NaN where the reward does not apply or failed.
        failed: per reward key, one bool per sample.
        total: the weighted sum; None where no reward applies.
        chunks: the share of `total` that each chunk of a sample brings, [] where chunks are not
            judged; None where no reward judges any.
        timing: how long that took.
    """

    components: dict[str, list[float]]
    failed: dict[str, list[bool]]
    total: list[float | None]
    chunks: list[list[float]] | None = None
    timing: Timing = field(default_factory=Timing)

    def outcomes(self) -> list[float]:
        """The share of `total` that no chunk brings; NaN where no reward applies."""
        shares = self.chunks or [[] for _ in self.total]
        return [
            math.nan if total is None else total - math.fsum(chunks)
            for total, chunks in zip(self.total, shares, strict=True)
        ]

    def metrics(self) -> dict[str, float]:
        """`rewards/<key>/mean` and `/std` (sample deviation) over the scored samples, and the
        numbers of samples it did not apply to (`/none`) and failed on (`/failures`)."""
        values: dict[str, float] = {}
        for key, scores in self.components.items():
            scored = [score for score in scores if not math.isnan(score)]
            failures = sum(self.failed[key])
            if scored:
                values[f"rewards/{key}/mean"] = statistics.fmean(scored)
                values[f"rewards/{key}/std"] = statistics.stdev(scored) if scored[1:] else 0.0
            values[f"rewards/{key}/none"] = float(len(scores) - len(scored) - failures)
            values[f"rewards/{key}/failures"] = float(failures)
        return values


class Scorer:
    """Scores samples with several rewards.

    Args:
        entries: one mapping per reward: `name` and its options, `weight`, `scale`, `offset`, and
            `key` where the same reward occurs twice. From Python an entry may hold a callable
            under `reward` instead of a name's options.
        max_failures: how much of one reward may fail before the run stops: below 1 a share of the
            samples of one call (those of a process and step), otherwise a number of samples over
            the whole run. At 0 the first failure stops it.
        retries: how often a call is repeated after a network error of a reward that does not use
            `rewards.http.service`, which repeats by itself.
        backoff: seconds before the first repetition, doubled each time.

    Raises:
        ValueError: an entry is wrong, two share a key, or two cut completions differently.

    Attributes:
        cutting: how completions are to be cut into the chunks that rewards judge; None where none
            does.
        overlap: the threads of its rewards; None where they are called when scores are needed.
    """

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        max_failures: float = 0.0,
        retries: int = 3,
        backoff: float = 1.0,
    ) -> None:
        check_entries(entries)
        if not max_failures >= 0:  # NaN is neither
            raise ValueError(f"max_failures is {max_failures}; it must be 0 or more.")
        self.terms = [build_term(entry, f"rewards[{n}]") for n, entry in enumerate(entries)]
        self.max_failures = max_failures
        self.retries = retries
        self.backoff = backoff
        self.failures = {term.key: 0 for term in self.terms}
        self.cutting = _cutting(self.terms)
        self.overlap: Overlap | None = None

    def check(self, prompts: Sequence[Prompt]) -> None:
        """`check_prompts` with every reward; a warning where one is not ready."""
        for term in self.terms:
            check_prompts(term, prompts, self.max_failures)
            problem = term.reward.ready() if isinstance(term.reward, Served) else ""
            if problem:
                logger.warning("reward %s could not score now: %s", term.key, problem)

    def begin(self, expected: int) -> Pending:
        """Samples that are to be scored, handed over as they are finished.

        Args:
            expected: how many there will be.
        """
        return Pending(self, expected, self.overlap)

    def score(self, samples: Sequence[Sample]) -> Scores:
        """Score a batch.

        Raises:
            RewardError: a reward failed more often than `max_failures` allows.
        """
        pending = self.begin(len(samples))
        pending.add(samples)
        return pending.scores()

    def combined(self, columns: Sequence[Column], timing: Timing) -> Scores:
        """The scores of a batch from the results of every reward."""
        results = {column.term.key: column.results for column in columns}
        failed = {k: [isinstance(r, Problem) for r in found] for k, found in results.items()}
        components = {key: [_raw(result) for result in found] for key, found in results.items()}
        rows = zip(*results.values(), strict=True)
        sums = [self._sums(dict(zip(results, row, strict=True))) for row in rows]
        chunks = None if self.cutting is None else [chunks for _, chunks in sums]
        return Scores(components, failed, [total for total, _ in sums], chunks, timing)

    def _sums(self, results: Mapping[str, Result]) -> tuple[float | None, list[float]]:
        """The weighted sum of one sample, and the share of each of its chunks."""
        whole: list[float] = []
        chunks: list[list[float]] = []
        for term in self.terms:
            result = results[term.key]
            if isinstance(result, list):
                chunks.append([term.contribution(score) for score in result])
            elif isinstance(result, float):
                whole.append(term.contribution(result))
        shares = [math.fsum(column) for column in zip(*chunks, strict=True)]
        return math.fsum([*whole, *shares]) if whole or chunks else None, shares

    def attempt(self, term: Term, batch: list[Sample]) -> list[Result]:
        """What a reward makes of samples; a failure is a `Problem`. Changes nothing here."""
        try:
            return validated(self._call(term, batch), batch)
        except PartialFailure as failure:
            return validated(failure.results, batch)
        except Exception as error:  # a reward is foreign code: whatever it raises is its failure
            unreachable = isinstance(error, NETWORK_ERRORS)
            if len(batch) > 1 and self.max_failures > 0 and not unreachable:
                # Alone, each sample shows whether it is the one the reward cannot digest.
                return [self.attempt(term, [sample])[0] for sample in batch]
            logger.debug("reward %s raised", term.key, exc_info=True)
            together = f", called with {len(batch)} samples" if len(batch) > 1 else ""
            return [Problem(f"raised {error!r}{together}", error)] * len(batch)

    def _call(self, term: Term, batch: list[Sample]) -> Any:
        for attempt in range(self.retries):
            try:
                return term.reward(batch)
            except Unreachable:  # was tried again already
                raise
            except NETWORK_ERRORS as error:
                pause = self.backoff * 2**attempt
                logger.warning("reward %s: %r; again in %.1f s", term.key, error, pause)
                time.sleep(pause)
        return term.reward(batch)

    def account(self, column: Column, samples: Sequence[Sample], expected: int) -> None:
        """Count and log the failures among the results that came since the last time.

        Args:
            column: results of one reward for the first of the samples.
            samples: of a call, as far as they were handed over.
            expected: how many there will be.

        Raises:
            RewardError: they are more than `max_failures` allows.
        """
        key, done = column.term.key, len(column.results)
        new = slice(column.accounted, done)
        found = zip(samples[new], column.results[new], strict=True)
        problems = [(sample, result) for sample, result in found if isinstance(result, Problem)]
        column.accounted = done
        if not problems:
            return
        for sample, problem in problems:
            identity = f"{sample.id}: " if sample.id else ""
            line = f"{identity}{sample.prompt[:80]!r}: {problem}"
            column.first = column.first if column.failures else (line, problem.error)
            column.failures += 1
            logger.warning("reward %s failed on %s", key, line)
        self.failures[key] += len(problems)
        if self.max_failures < 1:
            too_many = column.failures > self.max_failures * expected
        else:
            too_many = self.failures[key] > self.max_failures
        if too_many:
            raise RewardError(
                f"reward {key!r} failed on {column.failures} of {done} samples"
                f" ({self.failures[key]} in this run), max_failures is {self.max_failures:g}."
                f" First: {column.first[0]}. Correct the reward or its input, or raise max_failures"
                " (below 1: share of the samples of a process and step, otherwise a number per run)"
                " to leave such samples out."
            ) from column.first[1]


def check_prompts(term: Term, prompts: Sequence[Prompt], max_failures: float = 0.0) -> None:
    """Let a reward check the metadata of prompts, if it can; a warning where some may fail.

    Raises:
        ConfigError: names a prompt that cannot be scored, when no failure is allowed.
    """
    if not isinstance(term.reward, ChecksMetadata):
        return
    problems: list[str] = []
    for prompt in prompts:
        try:
            term.reward.check(prompt.facts)
        except ValueError as error:
            place = prompt.place or f"prompt {prompt.id}"
            problems.append(f"{place} cannot be scored by reward {term.key!r}: {error}")
    if problems:
        text = f"{problems[0]} ({len(problems)} such prompts of {len(prompts)})"
        if max_failures == 0:
            raise ConfigError(text)
        logger.warning("%s", text)


def _cutting(terms: Sequence[Term]) -> Cutting | None:
    found = {
        term.reward.cutting: term.key
        for term in terms
        if isinstance(term.reward, CutsCompletions) and term.reward.cutting is not None
    }
    if len(found) > 1:
        raise ValueError(
            f"the rewards {' and '.join(found.values())} cut completions differently; give them the"
            " same chunk_size and chunk_at, or leave one to whole completions."
        )
    return next(iter(found), None)


def _raw(result: Result) -> float:
    """The number that is logged for a result."""
    if isinstance(result, list):
        return statistics.fmean(result) if result else math.nan
    return result if isinstance(result, float) else math.nan
