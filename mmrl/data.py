"""Prompt sets: JSONL, JSON or parquet files, or data sets of the Hugging Face hub.

A row has its prompt under `prompt` or `text`, optionally an `id` and an `answer`; everything else
is metadata that rewards see as it is. GenEval's files (`tag`, `include`, `exclude`, `prompt`) load
unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mmrl.config import ConfigError, check
from mmrl.types import Prompt

T = TypeVar("T")
logger = logging.getLogger(__name__)

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
"""GenEval's tags (arXiv 2310.11513)."""


def load_prompts(
    path_or_hub_id: str, task: str, split: str = "train", limit: int | None = None
) -> list[Prompt]:
    """Prompts of a file or of a hub data set.

    Args:
        path_or_hub_id: a .jsonl, .json or .parquet file, or a hub id when no such file exists.
        task: layout of the prompts.
        split: of a hub data set.
        limit: at most this many prompts, see `spread`; None takes all.

    Raises:
        ConfigError: no such file or data set, a file that is not text, a line that is not JSON, a
            row without a prompt, GenEval metadata that is malformed or has an unknown tag, or no
            rows at all. Messages name file and line.
    """
    rows = _rows(path_or_hub_id, split)
    stem = Path(path_or_hub_id).stem
    prompts = [_prompt(row, place, task, f"{stem}-{n}") for n, (place, row) in enumerate(rows)]
    if not prompts:
        raise ConfigError(f"'{path_or_hub_id}' holds no prompts.")
    return spread(prompts, limit)


def fitting(prompts: Sequence[Prompt], fits: Callable[[Prompt], bool], source: str) -> list[Prompt]:
    """The prompts that are short enough, in order; how many were left out goes to the log.

    A prompt leaves with its answer and metadata, and those that stay keep their ids.

    Args:
        prompts: of one file.
        fits: whether a prompt is short enough for the model.
        source: the file, for messages.

    Raises:
        ConfigError: none is short enough.
    """
    kept = [prompt for prompt in prompts if fits(prompt)]
    if prompts and not kept:
        raise ConfigError(
            f"all {len(prompts)} prompts of '{source}' are longer than model.max_prompt_length;"
            " raise it."
        )
    if len(kept) < len(prompts):
        logger.warning(
            "%s: %d of %d prompts are longer than model.max_prompt_length and left out",
            source, len(prompts) - len(kept), len(prompts),
        )  # fmt: skip
    return kept


def spread(rows: Sequence[T], limit: int | None) -> list[T]:
    """At most `limit` rows at even distances, so that a file sorted by tag keeps all its tags.

    Raises:
        ConfigError: a limit below 1.
    """
    if limit is None:
        return list(rows)
    check(limit >= 1, "limit", limit, "null or at least 1")
    count = min(limit, len(rows))
    return [rows[n * len(rows) // count] for n in range(count)]


def _rows(source: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place for messages, row) of every row."""
    path = Path(source)
    if path.suffix == ".jsonl" and path.is_file():
        # splitlines() would also cut at separators that JSON allows inside a string
        for n, line in enumerate(_text(path).split("\n"), start=1):
            if line.strip():
                place = f"{source}, line {n}"
                yield place, _json(line, place)
    elif path.suffix == ".json" and path.is_file():
        listed = _json(_text(path), source)
        if not isinstance(listed, list):
            raise ConfigError(f"'{source}' must hold a JSON list of rows.")
        yield from ((f"{source}, entry {n}", row) for n, row in enumerate(listed))
    else:
        rows = _dataset(path, split)
        yield from ((f"{source}, row {n}", _without_nulls(row)) for n, row in enumerate(rows))


def _without_nulls(value: Any) -> Any:
    """Columnar files give every clause the keys of all clauses; what one lacks is null there."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8 text: {error}. Save it as UTF-8.") from error


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    from pyarrow.parquet import read_table

    try:
        return read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise ConfigError(f"'{path}' is not a readable parquet file: {error}") from error


def _dataset(path: Path, split: str) -> Any:
    from datasets import load_dataset

    if path.suffix == ".parquet" and path.is_file():
        return _parquet(path)
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
    if "include" in row:
        _check_geneval(row, place)
    rest = {k: v for k, v in row.items() if k not in ("id", "prompt", "text", "answer")}
    name, answer = row.get("id"), row.get("answer")
    return Prompt(
        default_id if name is None else str(name), task, text,
        answer=None if answer is None else str(answer), metadata=rest,
    )  # fmt: skip


def _check_geneval(row: dict[str, Any], place: str) -> None:
    """What every reward relies on; which classes and colours there are is each reward's own."""
    if row.get("tag") not in TAGS:
        raise ConfigError(f"{place}: tag is {row.get('tag')!r}; allowed: {', '.join(TAGS)}.")
    for key in ("include", "exclude"):
        clauses = row.get(key) or []
        listed = isinstance(clauses, list) and all(
            isinstance(clause, dict) and {"class", "count"} <= clause.keys() for clause in clauses
        )
        if not listed or (key == "include" and not clauses):
            raise ConfigError(
                f"{place}: {key} is {row[key]!r}; it must be a list of clauses such as"
                ' {"class": "bird", "count": 1}.'
            )
