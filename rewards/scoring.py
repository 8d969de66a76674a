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
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError

from mmrl.config import ConfigError
from mmrl.types import Cutting, Prompt, Sample
from rewards import ChecksMetadata, CutsCompletions, PartialFailure, Served
from rewards.results import Problem, Result, validated
from rewards.service import Unreachable
from rewards.terms import Term, build_term, check_entries

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
    """

    components: dict[str, list[float]]
    failed: dict[str, list[bool]]
    total: list[float | None]
    chunks: list[list[float]] | None = None

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
            samples of one call, otherwise a number of samples over the whole run. At 0 the first
            failure stops it.
        retries: how often a call is repeated after a network error of a reward that does not use
            `rewards.service`, which repeats by itself.
        backoff: seconds before the first repetition, doubled each time.

    Raises:
        ValueError: an entry is wrong, two share a key, or two cut completions differently.

    Attributes:
        cutting: how completions are to be cut into the chunks that rewards judge; None where none
            does.
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

    def check(self, prompts: Sequence[Prompt]) -> None:
        """`check_prompts` with every reward; a warning where one is not ready."""
        for term in self.terms:
            check_prompts(term, prompts, self.max_failures)
            problem = term.reward.ready() if isinstance(term.reward, Served) else ""
            if problem:
                logger.warning("reward %s could not score now: %s", term.key, problem)

    def score(self, samples: Sequence[Sample]) -> Scores:
        """Score a batch.

        Raises:
            RewardError: a reward failed more often than `max_failures` allows.
        """
        batch = list(samples)
        results: dict[str, list[Result]] = {}
        failed: dict[str, list[bool]] = {}
        for term in self.terms:
            found = self._attempt(term, batch)
            problems = {n: r for n, r in enumerate(found) if isinstance(r, Problem)}
            self._account(term.key, batch, problems)
            results[term.key] = found
            failed[term.key] = [n in problems for n in range(len(batch))]
        components = {key: [_raw(result) for result in found] for key, found in results.items()}
        sums = [
            self._sums({k: found[n] for k, found in results.items()}) for n in range(len(batch))
        ]
        chunks = None if self.cutting is None else [chunks for _, chunks in sums]
        return Scores(components, failed, [total for total, _ in sums], chunks)

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

    def _attempt(self, term: Term, batch: list[Sample]) -> list[Result]:
        try:
            return validated(self._call(term, batch), batch)
        except PartialFailure as failure:
            return validated(failure.results, batch)
        except Exception as error:  # a reward is foreign code: whatever it raises is its failure
            unreachable = isinstance(error, NETWORK_ERRORS)
            if len(batch) > 1 and self.max_failures > 0 and not unreachable:
                # Alone, each sample shows whether it is the one the reward cannot digest.
                return [self._attempt(term, [sample])[0] for sample in batch]
            logger.debug("reward %s raised", term.key, exc_info=True)
            return [Problem(f"raised {error!r}", error)] * len(batch)

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

    def _account(self, key: str, batch: Sequence[Sample], problems: Mapping[int, Problem]) -> None:
        if not problems:
            return
        self.failures[key] += len(problems)
        lines = [f"{batch[n].prompt[:80]!r}: {problem}" for n, problem in problems.items()]
        for line in lines:
            logger.warning("reward %s failed on %s", key, line)
        if self.max_failures < 1:
            too_many = len(problems) > self.max_failures * len(batch)
        else:
            too_many = self.failures[key] > self.max_failures
        if too_many:
            cause = next(iter(problems.values())).error
            raise RewardError(
                f"reward {key!r} failed on {len(problems)} of {len(batch)} samples"
                f" ({self.failures[key]} in this run), max_failures is {self.max_failures:g}."
                f" First: {lines[0]}. Correct the reward or its input, or raise max_failures"
                " (below 1: share of a batch, otherwise a number per run) to leave such samples"
                " out."
            ) from cause


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
