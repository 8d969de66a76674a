"""What rewards make of a handful of samples: range, failures, seconds, and whether they can vary.

    python -m rewards.probe config=configs/rl/….yaml

Here is what measures and what is printed; `mmrl.preflight.probe` finds the rewards and the samples
of a run.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mmrl.types import Sample
from rewards.scoring.results import Problem, Result
from rewards.scoring.scorer import Scorer
from rewards.scoring.terms import Term

CALL = 4
"""Samples of one call."""


@dataclass
class Probed:
    """What was found out about one reward.

    Attributes:
        name: its weight and key.
        results: one per sample; none where it was not tried.
        seconds: of each call.
        calls: how many there were.
        said: why it was not tried.
        failed: whether it can score nothing.
        warnings: what to look at before a run.
    """

    name: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    calls: int = 0
    said: str = ""
    failed: bool = False
    warnings: list[str] = field(default_factory=list)


def tried(name: str, term: Term, samples: Sequence[Sample], telling: bool = True) -> Probed:
    """Score samples with one reward, a few at a time; what it raises is counted.

    Args:
        name: how it is shown.
        term: the reward.
        samples: as many as are to be scored.
        telling: whether one score for all of them is worth a warning.
    """
    entry = {"name": term.key, "reward": term.reward}
    # without a limit on failures every sample of a call that failed is tried alone
    scorer, results, calls = Scorer([entry], math.inf, retries=0), [], 0
    started = time.perf_counter()
    for first in range(0, len(samples), CALL):
        results += scorer.attempt(term, list(samples[first : first + CALL]))
        calls += 1
    seconds = time.perf_counter() - started
    failed = bool(results) and all(isinstance(result, Problem) for result in results)
    found = list(_warnings(results, samples, telling))
    return Probed(name, results, seconds, calls, failed=failed, warnings=found)


def _warnings(results: Sequence[Result], samples: Sequence[Sample], telling: bool) -> Iterator[str]:
    problems = [result for result in results if isinstance(result, Problem)]
    if problems:
        yield f"failed on {len(problems)} of {len(results)}, first: {problems[0]}"
    known = [n for n, result in enumerate(results) if _number(result) is not None]
    if results and not known and len(problems) < len(results):
        yield "has no score for any of them; look whether their metadata is what it reads"
    scores = {_number(results[n]) for n in known}
    different = len({_identity(samples[n]) for n in known})
    if telling and len(scores) == 1 and different > 1:
        yield f"cannot vary: {next(iter(scores)):.4g} for {different} completions that differ"


def _identity(sample: Sample) -> object:
    """What tells completions apart."""
    if isinstance(sample.completion, str):
        return sample.completion
    return sample.completion.size, sample.completion.tobytes()


def _number(result: Result) -> float | None:
    """The score of a sample, the mean over its chunks where they are judged."""
    if isinstance(result, list):
        return statistics.fmean(result) if result else None
    return None if isinstance(result, Problem) else result


HEAD = ("n", "min", "mean", "max", "deviation", "none", "failures", "s/sample", "s/call")


def table(rows: Sequence[Probed]) -> Iterator[str]:
    """Lines with a row per reward, its warnings below it."""
    width = max([len(row.name) for row in rows] + [6]) + 2
    if any(row.results for row in rows):
        yield f"{'reward':<{width}}" + "".join(f"{head:>10}" for head in HEAD)
    for row in rows:
        cells = row.said if not row.results else "".join(f"{cell:>10}" for cell in _cells(row))
        yield f"{row.name:<{width}}{cells}"
        for warning in row.warnings:
            yield f"  warning: {row.name} {warning}"


def _cells(row: Probed) -> list[str]:
    scores = [score for result in row.results if (score := _number(result)) is not None]
    shown = ["-"] * 4
    if scores:
        deviation = statistics.stdev(scores) if scores[1:] else 0.0
        values = (min(scores), statistics.fmean(scores), max(scores), deviation)
        shown = [f"{value:.4g}" for value in values]
    failures = sum(isinstance(result, Problem) for result in row.results)
    none, number = len(row.results) - len(scores) - failures, len(row.results)
    times = [f"{row.seconds / number:.2g}", f"{row.seconds / row.calls:.2g}"]
    return [str(number), *shown, str(none), str(failures), *times]
