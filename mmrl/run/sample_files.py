"""Names of the files of completions in `samples/` of a run directory."""

import re
from pathlib import Path

HELD_OUT, ROLLOUTS = "eval", "completions"
"""Kinds of files: completions of an evaluation, and rollouts of a step."""


def sample_file(run: Path, kind: str, task: str, step: int) -> Path:
    """Where the completions of a task and step are, or will be."""
    return run / "samples" / f"{kind}_{task}_{step:06d}.parquet"


def find_samples(run: Path, kind: str) -> dict[str, dict[int, Path]]:
    """The files of a kind that are there, by task and then by step, both in order."""
    name = re.compile(rf"{kind}_(.+)_(\d+)\.parquet")
    matched = ((name.fullmatch(path.name), path) for path in (run / "samples").glob("*.parquet"))
    found: dict[str, dict[int, Path]] = {}
    for task, step, path in sorted((m[1], int(m[2]), path) for m, path in matched if m):
        found.setdefault(task, {})[step] = path
    return found
