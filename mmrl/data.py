"""Prompt sets: JSONL, JSON or parquet files, or data sets of the Hugging Face hub.

A row has its prompt under `prompt` or `text`, optionally an `id` and an `answer`; everything else
is metadata that rewards see as it is. GenEval's files (`tag`, `include`, `exclude`, `prompt`) load
unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError
from mmrl.types import Prompt

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
"""GenEval's tags (arXiv 2310.11513)."""


def load_prompts(path_or_hub_id: str, task: str, split: str = "train") -> list[Prompt]:
    """Prompts of a file or of a hub data set.

    Args:
        path_or_hub_id: a .jsonl, .json or .parquet file, or a hub id when no such file exists.
        task: layout of the prompts.
        split: of a hub data set.

    Raises:
        ConfigError: no such file or data set, a line that is not JSON, a row without a prompt, an
            unknown GenEval tag, or no rows at all. Messages name file and line.
    """
    rows = _rows(path_or_hub_id, split)
    stem = Path(path_or_hub_id).stem
    prompts = [_prompt(row, place, task, f"{stem}-{n}") for n, (place, row) in enumerate(rows)]
    if not prompts:
        raise ConfigError(f"'{path_or_hub_id}' holds no prompts.")
    return prompts


def _rows(source: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place for messages, row) of every row."""
    path = Path(source)
    if path.suffix == ".jsonl" and path.is_file():
        for n, line in enumerate(path.read_text().splitlines(), start=1):
            if line.strip():
                place = f"{source}, line {n}"
                yield place, _json(line, place)
    elif path.suffix == ".json" and path.is_file():
        listed = _json(path.read_text(), source)
        if not isinstance(listed, list):
            raise ConfigError(f"'{source}' must hold a JSON list of rows.")
        yield from ((f"{source}, entry {n}", row) for n, row in enumerate(listed))
    else:
        rows = _dataset(path, split)
        yield from ((f"{source}, row {n}", row) for n, row in enumerate(rows))


def _dataset(path: Path, split: str) -> Any:
    from datasets import Dataset, load_dataset

    if path.suffix == ".parquet" and path.is_file():
        return Dataset.from_parquet(str(path))
    if path.suffix in (".jsonl", ".json", ".parquet"):
        raise ConfigError(f"'{path}' is not a file; give a prompt file or a hub id.")
    try:
        return load_dataset(str(path), split=split)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"'{path}' is neither a .jsonl, .json or .parquet file nor a data set that the hub"
            f" returned ({type(error).__name__}: {str(error).splitlines()[0]})."
        ) from error


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{place} is not JSON: {error}. Correct or remove it.") from error


def _prompt(row: Any, place: str, task: str, default_id: str) -> Prompt:
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    text = row.get("prompt", row.get("text"))
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{place} has no text under 'prompt' or 'text'; it has {sorted(row)}.")
    if "include" in row and row.get("tag") not in TAGS:
        raise ConfigError(f"{place}: tag is {row.get('tag')!r}; allowed: {', '.join(TAGS)}.")
    rest = {k: v for k, v in row.items() if k not in ("id", "prompt", "text", "answer")}
    answer = row.get("answer")
    return Prompt(
        str(row.get("id", default_id)), task, text,
        answer=None if answer is None else str(answer), metadata=rest,
    )  # fmt: skip
