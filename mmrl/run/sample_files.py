"""Names of the files of completions in `samples/` of a run directory."""

import re
from pathlib import Path

HELD_OUT, ROLLOUTS = "eval", "completions"
"""Kinds of files: completions of an evaluation, and rollouts of a step."""


def samples_of(run: Path) -> Path:
    """Where the completions of a run are."""
    return run / "samples"


def sample_file(run: Path, kind: str, task: str, step: int) -> Path:
    """Where the completions of a task and step are, or will be."""
    return samples_of(run) / f"{kind}_{task}_{step:06d}.parquet"


def find_samples(folder: Path, kind: str) -> dict[str, dict[int, Path]]:
    """The files of a kind in a folder, by task and then by step, both in order."""
    name = re.compile(rf"{kind}_(.+)_(\d+)\.parquet")
    matched = ((name.fullmatch(path.name), path) for path in folder.glob("*.parquet"))
    found: dict[str, dict[int, Path]] = {}
    for task, step, path in sorted((m[1], int(m[2]), path) for m, path in matched if m):
        found.setdefault(task, {})[step] = path
    return found
