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
from mmrl.types import Prompt, Sample
from rewards.terms import build_term

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
) -> Iterator[str]:
    """One line per reward: its scores of two blank completions, or what it lacks.

    Args:
        entries: of a configuration.
        where: their dotted key, for messages.
        task: of the prompts.
        prompts: of which the first two are scored.
        side: of images in pixels; None takes 256.

    Raises:
        FileNotFoundError, ValueError: a reward that cannot be built, here or anywhere.
    """
    blank = BLANK.get(task, lambda side: "")(side or 256)
    samples = [Sample(prompt.text, blank, prompt.facts) for prompt in prompts[:2]]
    for n, entry in enumerate(entries):
        name = f"{entry.get('weight', 1):g} x {entry.get('key') or entry['name']}"
        yield f"{name:<24}{_probed(entry, f'{where}[{n}]', samples)}"


def _probed(entry: Mapping[str, Any], where: str, samples: list[Sample]) -> str:
    started = time.perf_counter()
    try:
        with offline():
            reward = build_term(entry, where).reward
    except (NotHereError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        return f"cannot run here: {error}"
    try:
        scores = list(reward(samples))
    except Exception as error:  # rewards are foreign code: whatever one raises is what it lacks
        return f"cannot run here: {error}"
    if not samples:
        return f"ready, no prompt here to score ({time.perf_counter() - started:.1f} s)"
    shown = ", ".join("none" if score is None else f"{score:.4g}" for score in scores)
    return f"blank completions score {shown} ({time.perf_counter() - started:.1f} s)"


@contextmanager
def offline() -> Iterator[None]:
    """Nothing is downloaded meanwhile; what is cached is found."""
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
