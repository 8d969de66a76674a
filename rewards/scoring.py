"""The weighted sum of several rewards, and what happens when one of them fails.

    total_i = sum over applicable rewards r of  weight_r * (scale_r * score_ri + offset_r)

None ("not applicable") is left out of the sum, as in TRL. A failure is an exception, a wrong number
of scores, or a score that is not a finite number: it is counted, logged with the sample, and stops
the run above a limit. It never becomes a zero.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any
from urllib.error import URLError

from mmrl.config import ConfigError
from mmrl.types import Prompt, Sample
from rewards import ChecksMetadata
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
        components: raw scores per reward key, one per sample; NaN where the reward does not apply
            or failed.
        failed: per reward key, one bool per sample.
        total: the weighted sum; None where no reward applies.
    """

    components: dict[str, list[float]]
    failed: dict[str, list[bool]]
    total: list[float | None]

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
        ValueError: an entry is wrong or two share a key.
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

    def check(self, prompts: Sequence[Prompt]) -> None:
        """`check_prompts` with every reward."""
        for term in self.terms:
            check_prompts(term, prompts, self.max_failures)

    def score(self, samples: Sequence[Sample]) -> Scores:
        """Score a batch.

        Raises:
            RewardError: a reward failed more often than `max_failures` allows.
        """
        batch = list(samples)
        components: dict[str, list[float]] = {}
        failed: dict[str, list[bool]] = {}
        for term in self.terms:
            results = self._attempt(term, batch)
            problems = {n: r for n, r in enumerate(results) if isinstance(r, Problem)}
            self._account(term.key, batch, problems)
            components[term.key] = [r if isinstance(r, float) else math.nan for r in results]
            failed[term.key] = [n in problems for n in range(len(batch))]
        return Scores(components, failed, self._total(components, len(batch)))

    def _total(self, components: Mapping[str, list[float]], count: int) -> list[float | None]:
        totals: list[float | None] = []
        for n in range(count):
            parts = [
                term.contribution(components[term.key][n])
                for term in self.terms
                if not math.isnan(components[term.key][n])
            ]
            totals.append(math.fsum(parts) if parts else None)
        return totals

    def _attempt(self, term: Term, batch: list[Sample]) -> list[float | None | Problem]:
        try:
            return validated(self._call(term, batch), len(batch))
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


@dataclass(frozen=True)
class Problem:
    """Why one sample has no score."""

    reason: str
    error: Exception | None = None

    def __str__(self) -> str:
        return self.reason


def validated(scores: Any, count: int) -> list[float | None | Problem]:
    """Scores as a reward returned them, with everything that is not a score made a `Problem`.

    Args:
        scores: should be a list of `count` finite numbers or None.
        count: number of samples.
    """
    if not isinstance(scores, list | tuple) or len(scores) != count:
        got = f"{len(scores)} scores" if isinstance(scores, list | tuple) else repr(type(scores))
        return [Problem(f"returned {got} for {count} samples")] * count
    return [_validated(score) for score in scores]


def _validated(score: Any) -> float | None | Problem:
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, Real):
        return Problem(f"returned {score!r}, which is not a number")
    return float(score) if math.isfinite(score) else Problem(f"returned {float(score)}")
