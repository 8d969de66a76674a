"""Run directories and their recorded completions, read with care.

A directory may come from anywhere: what is damaged is left out or named, nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mmrl.run.sample_files import HELD_OUT, ROLLOUTS, find_samples

DEEPEST = 5
"""Folders between a place that is named and the runs below it."""


def find_runs(places: Sequence[str]) -> dict[str, Path]:
    """Run directories by their path as a text: the places themselves, or what is below them, down
    to `DEEPEST` folders."""
    found = [path for place in places for path in _runs_below(Path(place), DEEPEST)]
    return {str(path): path for path in found}


def _runs_below(place: Path, depth: int) -> Iterator[Path]:
    """A run directory itself; of another one, those in its folders."""
    if (place / "metrics.jsonl").is_file() or (place / "config.yaml").is_file():
        yield place
    elif depth > 0 and place.is_dir():
        for path in sorted(place.iterdir()):
            yield from _runs_below(path, depth - 1)


def find_completions(run: Path) -> dict[str, Path]:
    """Files of held-out completions, as `<task>, held out, step <step>`, then those of rollouts, as
    `<task>, step <step>`, in order of task and step."""
    return {
        f"{task}{remark}, step {step}": path
        for kind, remark in ((HELD_OUT, ", held out"), (ROLLOUTS, ""))
        for task, files in find_samples(run / "samples", kind).items()
        for step, path in files.items()
    }
