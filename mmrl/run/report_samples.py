"""Completions in a report: the best, the worst and some others of each step.

They are read from the parquet files in `samples/`, see `mmrl.training.completions`. Everything in
them is data: the page escapes texts, and images are decoded, made small and encoded again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.run.checkpoint import model_folders
from mmrl.run.metrics_file import is_number
from mmrl.run.sample_files import (
    HELD_OUT,
    ROLLOUTS,
    find_samples,
    picture,
    read_samples,
    samples_of,
    score_names,
)

TITLES = {HELD_OUT: "Held-out completions", ROLLOUTS: "Rollouts"}
MOST_STEPS = 6
"""Steps shown of a task, spread over all."""
EACH = 3
"""Rows of the best, of the worst and of the others."""
MOST_CHARACTERS = 4000


def choose_samples(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Tables of completions by title, one for each step that is shown, as the template has them."""
    pieces = _read_pieces(run)
    found = {}
    for kind, title in TITLES.items():
        for task, files in find_samples(samples_of(run), kind).items():
            steps, last = [*files], max(1, min(MOST_STEPS, len(files)) - 1)
            shown = dict.fromkeys(steps[n * (len(steps) - 1) // last] for n in range(last + 1))
            found[f"{title}: {task}"] = [_table(step, files[step], pieces) for step in shown]
    return found


def _table(step: int, path: Path, pieces: Any) -> dict[str, Any]:
    try:
        table = read_samples(path)
    except ConfigError as error:
        return {"problem": str(error)}
    limits = {name: _limits(table.column(name).to_pylist()) for name in score_names(table)}
    main = "reward" if "reward" in limits else next(iter(limits), None)
    values = table.column(main).to_pylist() if main else [None] * len(table)
    rows = [
        (why, _row(table.slice(n, 1).to_pylist()[0], limits, pieces))
        for why, n in _choose(values, path.name)
    ]
    return {"step": step, "limits": limits, "rows": rows}


def _choose(values: Sequence[Any], name: str) -> list[tuple[str, int]]:
    """Why a row is shown, and its place: best first, then worst, then some of the others."""
    known = [n for n, value in enumerate(values) if is_number(value)]
    ordered = sorted(known, key=lambda n: -values[n])
    best, worst = ordered[:EACH], ordered[EACH:][: -EACH - 1 : -1]
    rest = [n for n in range(len(values)) if n not in {*best, *worst}]
    others = random.Random(name).sample(rest, min(EACH, len(rest)))
    groups = {"best": best, "worst": worst, "random": sorted(others)}
    return [(why, n) for why, places in groups.items() for n in places]


def _limits(values: Sequence[Any]) -> tuple[float, float]:
    known = [value for value in values if is_number(value)]
    return (min(known), max(known)) if known else (0.0, 0.0)


def _row(row: dict[str, Any], limits: dict[str, tuple[float, float]], pieces: Any) -> Any:
    scores = []
    for name, (low, high) in limits.items():
        value = row.get(name) if is_number(row.get(name)) else None
        share = 0.5 if value is None or high <= low else (value - low) / (high - low)
        scores.append((value, round(120 * share)))
    completion = row.get("completion")
    return {
        "prompt": _cut(row.get("prompt")),
        "image": picture(row["image"]) if row.get("image") else "",
        "completion": "" if isinstance(completion, dict) else _cut(completion),
        "picture": picture(completion) if isinstance(completion, dict) else "",
        "trace": _trace(row, pieces),
        "scores": scores,
    }


def _trace(row: dict[str, Any], pieces: Any) -> list[tuple[str, int, str]]:
    """Each token of a text, how light it is, and when and how surely it was written."""
    tokens, steps, logprobs = (row.get(key) or [] for key in ("tokens", "written_at", "logprobs"))
    if pieces is None or not isinstance(row.get("completion"), str):
        return []
    last = max(1, *steps) if steps else 1
    return [
        (
            pieces.decode([token], skip_special_tokens=False),
            round(92 - 34 * max(0, step) / last),
            f"step {step + 1}, probability {math.exp(min(0.0, logprob)):.3f}",
        )
        for token, step, logprob in zip(tokens, steps, logprobs, strict=False)
    ][:MOST_CHARACTERS]


def _cut(text: Any) -> str:
    shown = str(text or "")
    return f"{shown[:MOST_CHARACTERS]} …" if len(shown) > MOST_CHARACTERS else shown


def _read_pieces(run: Path) -> Any:
    """The tokenizer of the trained model, or of the last checkpoint; None without one."""
    for folder in model_folders(run):
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(folder / "tokenizer.json"))
    return None
