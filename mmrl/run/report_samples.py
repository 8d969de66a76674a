"""Completions in a report, from the best to the worst of a step.

They are read from the parquet files in `samples/`, see `mmrl.training.completions`. Everything in
them is data: the page escapes texts, and images are decoded, made small and encoded again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from mmrl.config import ConfigError
from mmrl.run.metrics_file import is_number
from mmrl.run.sample_files import (
    HELD_OUT,
    ROLLOUTS,
    embed_stored,
    find_samples,
    read_samples,
    samples_of,
    score_names,
)

T = TypeVar("T")
TITLES = {HELD_OUT: "Held-out completions", ROLLOUTS: "Rollouts"}
MOST_STEPS, MOST_ROWS = 6, 9
"""Steps of a task, and completions of a step; both spread over all, with the first and the last."""
MOST_CHARACTERS = 4000


def choose_samples(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Tables of completions by title, one for each step that is shown, as the template has them."""
    found = {}
    for kind, title in TITLES.items():
        for task, files in find_samples(samples_of(run), kind).items():
            shown = _spread([*files.items()], MOST_STEPS)
            found[f"{title}: {task}"] = [_table(step, path) for step, path in shown]
    return found


def _spread(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many at even distances, the first and the last among them."""
    count = min(most, len(items))
    return [items[n * (len(items) - 1) // max(1, count - 1)] for n in range(count)]


def _table(step: int, path: Path) -> dict[str, Any]:
    try:
        table = read_samples(path)
    except ConfigError as error:
        return {"problem": str(error)}
    scores = score_names(table)
    main = "reward" if "reward" in scores else next(iter(scores), None)
    values = table[main].to_pylist() if main else [0.0] * len(table)
    ranks = [-value if is_number(value) else math.inf for value in values]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    rows = table.take(_spread(order, MOST_ROWS)).to_pylist()
    return {"step": step, "scores": scores, "rows": [_row(row, scores) for row in rows]}


def _row(row: dict[str, Any], scores: Sequence[str]) -> dict[str, Any]:
    completion = row["completion"]
    stored = isinstance(completion, dict)
    return {
        "prompt": _cut(row["prompt"]),
        "image": embed_stored(row["image"]) if row.get("image") else "",
        "completion": "" if stored else _cut(completion),
        "drawn": embed_stored(completion) if stored else "",
        "scores": [row[name] if is_number(row[name]) else None for name in scores],
    }


def _cut(text: Any) -> str:
    shown = str(text or "")
    return f"{shown[:MOST_CHARACTERS]} …" if len(shown) > MOST_CHARACTERS else shown
