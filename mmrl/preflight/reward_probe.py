"""Rewards scored on a few samples: range, failures, time, and whether they can vary."""

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from mmrl.config import NotHereError
from mmrl.models.task_names import writes_images
from mmrl.preflight.plan_page import Plan, cut
from mmrl.preflight.probe_samples import ProbeSamples, cut_at_words
from mmrl.rewards.registry.interface import CutsCompletions, Served, in_step
from mmrl.rewards.scoring.column import Column
from mmrl.rewards.scoring.failures import Failures, RewardError
from mmrl.rewards.scoring.returned import Failure, Result
from mmrl.rewards.scoring.scorer import Scorer, check_prompts
from mmrl.rewards.scoring.terms import Term, build_term, key_of
from mmrl.rollouts.tasks import check_chunks
from mmrl.types import Prompt, Sample

CALL = 4
"""Samples of one call."""
HEAD = ("n", "min", "mean", "max", "deviation", "none", "failures", "s/sample", "s/call")


@dataclass
class Probe:
    """What a probe found out about one reward.

    Attributes:
        name: its weight and key.
        results: one per sample; empty where it was not called.
        seconds: of all calls.
        note: why it was not called.
        failed: whether it can score nothing.
        refused: why a run would stop at its first samples; empty where it would not.
        warnings: what to check before a run.
    """

    name: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
    failed: bool = False
    refused: str = ""
    warnings: list[str] = field(default_factory=list)


def probe_rewards(
    entries: Sequence[Mapping[str, Any]],
    where: str,
    task: str,
    prompts: Sequence[Prompt],
    samples: ProbeSamples,
    max_failures: float = 0.0,
    dry: bool = True,
) -> Iterator[Probe]:
    """Build rewards one after the other, check prompts with them, and score samples.

    Args:
        entries: of a configuration.
        where: their dotted key, for messages.
        task: layout of the prompts.
        prompts: all are checked.
        samples: what is scored.
        max_failures: above 0 prompts that cannot be scored are no error.
        dry: whether nothing is downloaded, and a served reward is only asked whether it is ready.

    Raises:
        FileNotFoundError, ValueError: a reward that can be built nowhere, or cannot score a prompt.
    """
    for n, entry in enumerate(entries):
        name = f"{entry.get('weight', 1):g} x {key_of(entry)}"
        try:
            with offline() if dry else nullcontext():
                term = build_term(entry, f"{where}[{n}]")
        except (NotHereError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            yield Probe(name, note=f"cannot run here: {error}", failed=True)
            continue
        cutting = term.reward.cutting if isinstance(term.reward, CutsCompletions) else None
        check_chunks(cutting, task, f"{where}[{n}]")
        check_prompts(term, prompts, max_failures, writes_images(task))
        problem = term.reward.ready() if isinstance(term.reward, Served) else ""
        scored = samples.samples if cutting is None else cut_at_words(samples.samples, cutting.size)
        if in_step(term.reward):
            yield Probe(name, note="not tried: the loop calls it itself, beside the policy")
        elif problem:
            yield Probe(name, note=f"cannot run here: {problem}", failed=True)
        elif dry and isinstance(term.reward, Served):
            yield Probe(name, note="ready")
        elif not scored:
            yield Probe(name, note="ready, nothing to score")
        else:
            yield score_samples(name, term, scored, samples.distinct, max_failures)


def score_samples(
    name: str,
    term: Term,
    samples: Sequence[Sample],
    distinct: bool = True,
    max_failures: float = 0.0,
) -> Probe:
    """Score samples with one reward, a few per call; its exceptions are counted as failures.

    Args:
        name: how it is shown.
        term: the reward.
        samples: at least one.
        distinct: whether equal scores for all of them are worth a warning.
        max_failures: of the run, which stops where it fails on all samples as here.
    """
    entry = {"name": term.key, "reward": term.reward}
    # without a limit on failures every sample of a failed call is scored again alone
    scorer, results = Scorer([entry], math.inf, retries=0), []
    started = time.perf_counter()
    for first in range(0, len(samples), CALL):
        results += scorer.attempt(term, list(samples[first : first + CALL]))
    seconds = time.perf_counter() - started
    failed = all(isinstance(result, Failure) for result in results)
    warnings, refused = list(_warnings(results, samples, distinct)), ""
    if failed:
        column = Column(term, scorer.attempt)
        column.results = results[:1]
        try:
            Failures(max_failures).count(column, samples[:1], 1)
        except RewardError as error:
            refused = str(error)
    return Probe(name, results, seconds, failed=failed, refused=refused, warnings=warnings)


def _warnings(
    results: Sequence[Result], samples: Sequence[Sample], distinct: bool
) -> Iterator[str]:
    problems = [result for result in results if isinstance(result, Failure)]
    if problems:
        first = f"{problems[0]}{problems[0].place}"
        yield f"failed on {len(problems)} of {len(results)}, first: {first}"
    known = [n for n, result in enumerate(results) if _score(result) is not None]
    if not known and len(problems) < len(results):
        yield "has no score for any of them; check that their metadata is what it reads"
    scores = {_score(results[n]) for n in known}
    different = len({_identity(samples[n]) for n in known})
    if distinct and len(scores) == 1 and different > 1:
        yield f"cannot vary: {next(iter(scores)):.4g} for {different} different completions"


def _identity(sample: Sample) -> object:
    """A hashable value that differs between different completions."""
    if isinstance(sample.completion, str):
        return sample.completion
    return sample.completion.size, sample.completion.tobytes()


def _score(result: Result) -> float | None:
    """The score of a sample; the mean over its chunks where the reward scores chunks."""
    if isinstance(result, list):
        return statistics.fmean(result) if result else None
    return None if isinstance(result, Failure) else result


def format_probes(probes: Sequence[Probe]) -> Iterator[str]:
    """Lines of a table with a row per reward, its warnings below it."""
    width = max([len(probe.name) for probe in probes] + [6]) + 2
    if any(probe.results for probe in probes):
        yield f"{'reward':<{width}}" + "".join(f"{head:>10}" for head in HEAD)
    for probe in probes:
        cells = "".join(f"{cell:>10}" for cell in _cells(probe)) if probe.results else probe.note
        yield f"{probe.name:<{width}}{cells}"
        for warning in probe.warnings:
            yield f"  warning: {probe.name} {warning}"


def add_probes(plan: Plan, title: str, probes: Sequence[Probe]) -> None:
    """Add a line for each reward to a plan, which is refused where a run would stop at once."""
    lines = []
    for probe in probes:
        number, low, mean, high, *_, seconds, _ = _cells(probe) if probe.results else [""] * 9
        scores = f"mean {mean} ({low} to {high}), {seconds} s a sample" if number else probe.note
        lines += [cut(f"{probe.name}: {scores}"), *(f"warning: {each}" for each in probe.warnings)]
        plan.refuse(probe.refused)
    plan.add("rewards", title, *lines)
    plan.details += [title, *(f"  {line}" for line in format_probes(probes))]


def _cells(probe: Probe) -> list[str]:
    scores = [score for result in probe.results if (score := _score(result)) is not None]
    shown = ["-"] * 4
    if scores:
        deviation = statistics.stdev(scores) if scores[1:] else 0.0
        values = (min(scores), statistics.fmean(scores), max(scores), deviation)
        shown = [f"{value:.4g}" for value in values]
    number = len(probe.results)
    failures = sum(isinstance(result, Failure) for result in probe.results)
    times = [f"{probe.seconds / n:.2g}" for n in (number, -(-number // CALL))]
    return [str(number), *shown, str(number - len(scores) - failures), str(failures), *times]


@contextmanager
def offline() -> Iterator[None]:
    """Forbid downloads from the Hugging Face hub; its cache is still read."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
