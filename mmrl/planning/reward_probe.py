"""Rewards scored on a few dummy samples before a run: range, failures and time."""

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from PIL import Image

from mmrl.config import NotHereError
from mmrl.data.prompts import spread
from mmrl.models.task_names import TEXTS, VIDEOS, completions_of
from mmrl.planning.plan_page import Plan, cut
from mmrl.randomness import generator
from mmrl.rewards.networks.placement import FROZEN, count_bytes
from mmrl.rewards.registry.interface import CutsCompletions, Served, in_step
from mmrl.rewards.scoring.failures import Failures, RewardError, TermScores
from mmrl.rewards.scoring.returned import Failure, Result
from mmrl.rewards.scoring.scorer import Scorer, check_prompts
from mmrl.rewards.scoring.terms import Term, build_term, key_of
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task, check_chunks
from mmrl.types import Prompt, Sample, Video

FEW = 2
"""Dummy samples of a dry run, which is to take seconds."""
CALL = 4
"""Samples of one call of a reward."""


def make_dummy_samples(
    task: str, prompts: Sequence[Prompt], count: int, side: int | None
) -> list[Sample]:
    """Completions that no policy sampled, for some prompts of a task. Images are blank or noise, of
    `side` pixels or 256, and a video is five of one. Texts are blank or answers of the data, bare,
    tagged and boxed: first those of the prompt, then of another."""
    chosen, made, samples = spread(prompts, count) if prompts else [], completions_of(task), []
    for n in range(count if chosen else 0):
        prompt, other = (chosen[place % len(chosen)] for place in (n, n + 1))
        completion = _text(n, prompt, other) if made == TEXTS else _image(n, side or 256)
        if made == VIDEOS:
            completion = Video(np.stack([np.asarray(completion)] * 5))
        samples.append(Sample.of(prompt, completion))
    return samples


def _image(n: int, side: int) -> Image.Image:
    if n % 2 == 0:
        return Image.new("RGB", (side, side), ("white", "black", "red", "blue")[n // 2 % 4])
    noise = torch.randint(0, 256, (side, side, 3), generator=generator("probe", n))
    return Image.fromarray(noise.to(torch.uint8).numpy())


def _text(n: int, prompt: Prompt, other: Prompt) -> str:
    answer = str((other if n // 4 % 2 else prompt).answer or prompt.text)
    forms = ("", answer, f"<answer>{answer}</answer>", f"\\boxed{{{answer}}}")
    return prompt.prefill + forms[n % len(forms)]


@dataclass
class Probe:
    """What a probe found out about one reward: its scores, or why it was not called, what to check
    before a run, whether it can score nothing, why a run would stop at its first samples (empty
    where it would not), and the bytes of its networks on a device."""

    name: str
    note: str
    warnings: list[str] = field(default_factory=list)
    failed: bool = False
    refused: str = ""
    size: int = 0

    def lines(self) -> Iterator[str]:
        """What was found out, in words, and each warning."""
        yield f"{self.name}: {self.note}"
        yield from (f"warning: {self.name} {warning}" for warning in self.warnings)


def probe_task(
    config: RLConfig, task: Task, count: int = FEW, dry: bool = True
) -> Iterator[tuple[str, list[Probe]]]:
    """Score dummy samples with the rewards of a task and of its evaluations, see `probe_rewards`;
    yield a title that names the rewards and the samples, and a probe of each reward."""
    options = task.config
    held_out = [] if options.eval_rewards else task.eval_prompts
    checked = {"rewards": [*task.prompts, *held_out], "eval_rewards": task.eval_prompts}
    for key, prompts in checked.items():
        entries, where = getattr(options, key), f"tasks.{task.name}.{key}"
        if entries:
            samples = make_dummy_samples(options.task, prompts, count, config.model.image_size)
            arguments = (entries, where, options.task, prompts, samples, options.max_failures, dry)
            yield f"{where}, on {len(samples)} dummy samples", list(probe_rewards(*arguments))


def probe_rewards(
    entries: Sequence[Mapping[str, Any]],
    where: str,
    task: str,
    prompts: Sequence[Prompt],
    samples: Sequence[Sample],
    max_failures: float = 0.0,
    dry: bool = True,
) -> Iterator[Probe]:
    """Build rewards at the dotted key `where` one after the other, check all prompts with them, and
    score samples; where `max_failures` is above 0, prompts that cannot be scored are no error. With
    `dry` nothing is downloaded, and a served reward is only asked whether it is ready. Raises
    FileNotFoundError, ValueError: one that can be built nowhere, or cannot score a prompt."""
    for n, entry in enumerate(entries):
        name, before = f"{entry.get('weight', 1):g} x {key_of(entry)}", {*FROZEN}
        try:
            with offline() if dry else nullcontext():
                term = build_term(entry, f"{where}[{n}]")
        except (NotHereError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            yield Probe(name, note=f"cannot run here: {error}", failed=True)
            continue
        cutting = term.reward.cutting if isinstance(term.reward, CutsCompletions) else None
        check_chunks(cutting, task, f"{where}[{n}]")
        check_prompts(term, prompts, max_failures, completions_of(task))
        size, served = count_bytes({*FROZEN} - before), isinstance(term.reward, Served)
        problem = term.reward.ready() if isinstance(term.reward, Served) else ""
        if in_step(term.reward):
            found = Probe(name, note="not tried: the loop calls it itself, beside the policy")
        elif cutting is not None:
            found = Probe(name, note="not tried: it scores chunks, which a sampler cuts")
        elif problem:
            found = Probe(name, note=f"cannot run here: {problem}", failed=True)
        elif (dry and served) or not samples:
            found = Probe(name, note="ready" if served else "ready, nothing to score")
        else:
            found = score_samples(name, term, samples, max_failures)
        found.size = size
        yield found


def score_samples(
    name: str, term: Term, samples: Sequence[Sample], max_failures: float = 0.0
) -> Probe:
    """Score samples with one reward, a few per call; its exceptions are counted as failures, and a
    run that allows `max_failures` is refused where it would stop at these samples."""
    entry = {"name": term.key, "reward": term.reward}
    # without a limit on failures every sample of a failed call is scored again alone
    scorer, results = Scorer([entry], math.inf, retries=0), list[Result]()
    started = time.perf_counter()
    for first in range(0, len(samples), CALL):
        results += scorer.attempt(term, list(samples[first : first + CALL]))
    seconds = (time.perf_counter() - started) / len(results)
    scores = [result for result in results if isinstance(result, float)]
    problems = [result for result in results if isinstance(result, Failure)]
    left = len(results) - len(scores) - len(problems)
    absent = {"without a score": left, "failed": len(problems)}
    parts = [f"{count} of {len(results)} {what}" for what, count in absent.items() if count]
    if scores:
        mean = f"mean {statistics.fmean(scores):.4g}"
        parts.insert(0, f"{mean} ({min(scores):.4g} to {max(scores):.4g})")
    found = Probe(name, ", ".join([*parts, f"{seconds:.2g} s a sample"]))
    found.failed = len(problems) == len(results)
    if problems:
        first = f"{problems[0]}{problems[0].place}"
        found.warnings.append(f"failed on {len(problems)} of {len(results)}, first: {first}")
    elif not scores:
        found.warnings.append("has no score for any of them; check their metadata")
    if found.failed:
        column = TermScores(term, scorer.attempt)
        column.results = results[:1]
        try:
            Failures(max_failures).count(column, samples[:1], 1)
        except RewardError as error:
            found.refused = str(error)
    return found


def add_probes(plan: Plan, title: str, probes: Sequence[Probe]) -> None:
    """Add a line for each reward to a plan, which is refused where a run would stop at once."""
    plan.add("rewards", title, *(cut(line) for probe in probes for line in probe.lines()))
    plan.refuse(*(probe.refused for probe in probes))


@contextmanager
def offline() -> Iterator[None]:
    """Forbid downloads from the Hugging Face hub; its cache is still read."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
