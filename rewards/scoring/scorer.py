"""Scores samples with several rewards: their weighted sum, retries, failures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

from mmrl.config import ConfigError, check
from mmrl.rewards import PartialFailure
from mmrl.rewards.http import stop
from mmrl.rewards.registry.interface import ChecksMetadata, CutsCompletions, Served, in_step
from mmrl.rewards.scoring.failures import Failures, TermScores
from mmrl.rewards.scoring.overlap import Overlap
from mmrl.rewards.scoring.returned import Failure, Result, validate
from mmrl.rewards.scoring.reward_scores import RewardScores, combine
from mmrl.rewards.scoring.terms import Term, build_term, check_completions, check_entries
from mmrl.types import Cutting, Prompt, Sample

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

NETWORK_ERRORS = (ConnectionError, TimeoutError, URLError)


class Scorer:
    """Scores samples with several rewards, one for each of the entries, see
    `mmrl.rewards.scoring.terms`.

    `max_failures`: how much of one reward may fail before the run stops: below 1 a share of the
    samples of one call (those of a process and step), otherwise a number of samples over the whole
    run. With 0 the first failure stops it. After a network error there are so many `retries`, the
    first after `backoff` seconds, doubled each time; those of services retry by themselves, see
    `mmrl.rewards.http.service`.

    `cutting`: how completions are cut into the chunks that rewards judge; None if none does.
    `failures` counts those of the run. `overlap`: the threads of its rewards; None if they are
    called when scores are needed. Raises ValueError: an entry is wrong, two share a key, or two cut
    completions differently."""

    def __init__(
        self,
        entries: Sequence[Mapping[str, Any]],
        max_failures: float = 0.0,
        retries: int = 3,
        backoff: float = 1.0,
    ) -> None:
        if entries:  # else rewards come from the tasks that follow
            check_entries(entries)
        check(max_failures >= 0, "max_failures", max_failures, "0 or more")
        self.terms = [build_term(entry, f"rewards[{n}]") for n, entry in enumerate(entries)]
        self.max_failures, self.failures = max_failures, Failures(max_failures)
        self.retries, self.backoff = retries, backoff
        self.cutting = _cutting(self.terms)
        self.overlap: Overlap | None = None

    def check(self, prompts: Sequence[Prompt], made: str | None = None) -> None:
        """Check prompts with every reward (`check_prompts`), and log rewards that are not ready."""
        for term in self.terms:
            check_prompts(term, prompts, self.max_failures, made)
            if isinstance(term.reward, Served) and (problem := term.reward.ready()):
                logger.warning("reward %s could not score now: %s", term.key, problem)

    def begin(self, expected: int) -> Pending:
        """Start a batch whose samples, `expected` many, are handed over as they are finished."""
        return Pending(self, expected)

    def score(self, samples: Sequence[Sample]) -> RewardScores:
        """Score a batch. Raises RewardError: a reward failed above `max_failures`."""
        pending = self.begin(len(samples))
        pending.add(samples)
        return pending.scores()

    def differentiate(self, pixels: Sequence[Tensor], samples: list[Sample]) -> Tensor:
        """[n] float32, the weighted sums of images with their gradient, see `Differentiable`;
        rewards of weight 0 are not asked."""
        counted = [term for term in self.terms if term.weight]
        parts = [term.contribution(term.score_pixels(pixels, samples)) for term in counted]
        total: Any = sum(parts)
        return total

    def attempt(self, term: Term, batch: list[Sample]) -> list[Result]:
        """Call a reward; a failure is a `Failure` in place of a score, and is not counted here."""
        found = call_reward(lambda part: self._call(term, part), batch, self.max_failures > 0)
        return [term.weigh(result) for result in found]

    def _call(self, term: Term, batch: list[Sample]) -> Any:
        for attempt in range(self.retries):
            try:
                return term.score(batch)
            except NETWORK_ERRORS as error:
                pause = self.backoff * 2**attempt
                logger.warning("reward %s: %r; again in %.1f s", term.key, error, pause)
                stop.sleep(pause)
        return term.score(batch)


class Pending:
    """Samples of one call that are handed over as they are finished, and scored in threads where
    the scorer has these; `expected` is how many there will be, of which a failure limit below 1 is
    a share."""

    def __init__(self, scorer: Scorer, expected: int) -> None:
        self.scorer, self.overlap, self.expected = scorer, scorer.overlap, expected
        self.columns = [TermScores(term, scorer.attempt) for term in scorer.terms]
        self.samples: list[Sample] = []
        alone = self.overlap is None
        self._called_here = [c for c in self.columns if alone or in_step(c.term.reward)]
        if self.overlap is not None:
            self.overlap.checks.append(self.check)

    def add(self, samples: Sequence[Sample]) -> None:
        """Hand over the next samples. Raises RewardError: a reward failed above the limit."""
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
            self.scorer.failures.count(column, self.samples, self.expected)

    def scores(self) -> RewardScores:
        """Wait for the scores of all samples. Called once, after the last hand-over. Raises
        RewardError: a reward failed more often than allowed."""
        started = time.perf_counter()
        for column in self._called_here:
            column.call(self.samples)
            self.check()
        if self.overlap is not None:
            count = len(self.samples)
            self.overlap.wait(lambda: all(len(c.results) == count for c in self.columns))
            self.overlap.checks.remove(self.check)
        return combine(self.columns, self.scorer.cutting is not None, time.perf_counter() - started)


def call_reward(
    reward: Callable[[list[Sample]], Any], batch: list[Sample], one_by_one: bool
) -> list[Result]:
    """What a reward says of samples, with a `Failure` for each that has no score. With `one_by_one`
    they are called alone after an error, so that those alone fail that are the reason; but not
    where the network is."""
    try:
        return validate(reward(batch), batch)
    except PartialFailure as failure:
        return validate(failure.results, batch)
    except (Exception, SystemExit) as error:  # a reward may be the user's code and raise anything
        if one_by_one and len(batch) > 1 and not isinstance(error, NETWORK_ERRORS):
            return [call_reward(reward, [sample], True)[0] for sample in batch]
        logger.debug("a reward raised", exc_info=True)
        together = f", called with {len(batch)} samples" if len(batch) > 1 else ""
        return [Failure(f"raised {error!r}{together}", error)] * len(batch)


def check_prompts(
    term: Term, prompts: Sequence[Prompt], max_failures: float = 0.0, made: str | None = None
) -> None:
    """Let a reward check the metadata of prompts of one task, if it can. Bad ones are logged if
    failures are allowed (`max_failures`, see `Scorer`). `made`: what completions of the task are,
    see `mmrl.rewards.scoring.terms.SCORED`; None where that is not known. Raises ConfigError: names
    a prompt that cannot be scored, and no failure is allowed; or completions of the task are not
    what the reward scores."""
    if made is not None:
        check_completions(term, made)
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
