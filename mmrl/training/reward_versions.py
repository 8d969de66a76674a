"""The versions of served rewards, kept in checkpoints: scores of two versions do not compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mmrl.rewards.registry.interface import Versioned

if TYPE_CHECKING:
    from mmrl.rollouts.tasks import Task

NAME = "reward_versions.json"


def write_versions(tasks: Mapping[str, Task], folder: Path) -> None:
    """Write which versions have scored so far, if any."""
    known = {place: sorted(reward.versions) for place, reward in _served(tasks)}
    seen = {place: versions for place, versions in known.items() if versions}
    if seen:
        (folder / NAME).write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")


def read_versions(tasks: Mapping[str, Task], checkpoint: Path) -> None:
    """Give served rewards the versions of a checkpoint, so that another version is reported."""
    path = checkpoint / NAME
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for place, reward in _served(tasks):
        reward.versions.update(stored.get(place, []))


def _served(tasks: Mapping[str, Task]) -> Iterator[tuple[str, Versioned]]:
    for name, task in tasks.items():
        scorers = {"rewards": task.scorer}
        if task.eval_scorer is not task.scorer:
            scorers["eval_rewards"] = task.eval_scorer
        for key, scorer in scorers.items():
            for term in scorer.terms:
                if isinstance(term.reward, Versioned):
                    yield f"{name}.{key}.{term.key}", term.reward
