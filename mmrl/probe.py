"""Rewards tried on blank completions, for a dry run; nothing is downloaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from PIL import Image

from mmrl.config import NotHereError
from mmrl.tasks import check_chunks
from mmrl.types import Prompt, Sample
from rewards import CutsCompletions, Served
from rewards.asking import AsksPolicy
from rewards.scoring import check_prompts
from rewards.terms import Term, build_term

BLANK: dict[str, Callable[[int], Any]] = {
    "text_to_image": lambda side: Image.new("RGB", (side, side), "white"),
}
"""Task -> a completion that every reward of the task must be able to score."""


def probe(
    entries: Sequence[Mapping[str, Any]],
    where: str,
    task: str,
    prompts: Sequence[Prompt],
    side: int | None = None,
    max_failures: float = 0.0,
) -> Iterator[str]:
    """One line per reward: its scores of two blank completions, or what it lacks. A served reward
    is asked only whether it is there, and one that asks the policy has to wait for it.

    Args:
        entries: of a configuration.
        where: their dotted key, for messages.
        task: of the prompts.
        prompts: all are checked, the first two are scored.
        side: of images in pixels; None takes 256.
        max_failures: above 0 prompts that cannot be scored are no error.

    Raises:
        FileNotFoundError, ValueError: a reward that can be built nowhere, or cannot score a prompt.
    """
    blank = BLANK.get(task, lambda side: "")(side or 256)
    samples = [Sample(prompt.text, blank, prompt.facts) for prompt in prompts[:2]]
    for n, entry in enumerate(entries):
        name = f"{entry.get('weight', 1):g} x {entry.get('key') or entry['name']}"
        started = time.perf_counter()
        try:
            with offline():
                term = build_term(entry, f"{where}[{n}]")
        except (NotHereError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            yield f"{name:<24}cannot run here: {error}"
            continue
        if isinstance(term.reward, CutsCompletions):
            check_chunks(term.reward.cutting, task, f"{where}[{n}]")
        check_prompts(term, prompts, max_failures)
        said = _said(term, samples)
        yield f"{name:<24}{said} ({time.perf_counter() - started:.1f} s)"


def _said(term: Term, samples: list[Sample]) -> str:
    if isinstance(term.reward, AsksPolicy):
        return "ready, asks the policy"
    return _asked(term.reward) if isinstance(term.reward, Served) else _tried(term, samples)


def _tried(term: Term, samples: list[Sample]) -> str:
    try:
        scores = list(term.reward(samples))
    except Exception as error:  # rewards are foreign code: whatever one raises is what it lacks
        return f"cannot run here: {error}"
    if not samples:
        return "ready, no prompt here to score"
    shown = ", ".join("none" if score is None else f"{score:.4g}" for score in scores)
    return f"blank completions score {shown}"


def _asked(reward: Served) -> str:
    problem = reward.ready()
    return f"cannot run here: {problem}" if problem else "ready"


@contextmanager
def offline() -> Iterator[None]:
    """Nothing is downloaded meanwhile; what is cached is found."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
