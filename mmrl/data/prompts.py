"""Prompt sets: rows of files or of the Hugging Face hub become prompts.

A row has its prompt under `messages`, `prompt`, `question` or `text`, optionally an `id` and an
`answer`; everything else is metadata that rewards see as it is. Rows with other names are brought
to these by `data.format` (a known data set) or `data.columns` (names that differ). GenEval's files
(`tag`, `include`, `exclude`, `prompt`) load unchanged.

Pictures stand under `image` or `images`, one or a list, or in the parts of messages; what may stand
for one says `mmrl.data.image_sources`. A prompt opens them when it is asked for its `images`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mmrl.config import ConfigError, check
from mmrl.data.data_config import DataConfig
from mmrl.data.formats import adapted
from mmrl.data.image_sources import IMAGE_KEYS, find_picture, picture_root, picture_values
from mmrl.data.images import Pictures, check_pictures
from mmrl.data.messages import placed, read_prompt, text_of, user_message
from mmrl.data.questions import hint, lettered
from mmrl.data.rows import read_rows
from mmrl.types import Prompt

T = TypeVar("T")
logger = logging.getLogger(__name__)

PROMPT_KEYS = ("messages", "prompt", "question", "text")
"""Where the prompt of a row may stand; the first that is there is taken."""
WITHOUT_IMAGES = ("text", "text_to_image")
"""Tasks whose prompts are words alone."""


def load_prompts(
    path_or_hub_id: str, task: str, data: DataConfig | None = None, limit: int | None = None
) -> list[Prompt]:
    """Prompts of a file or of a hub data set.

    Args:
        path_or_hub_id: a .jsonl, .json, .csv, .tsv or .parquet file, a .txt with a prompt in every
            line, otherwise a hub id or a folder that `datasets.load_dataset` reads.
        task: layout of the prompts.
        data: how rows are read; None for rows that have our names.
        limit: at most this many prompts, see `spread`; None takes all.

    Raises:
        NotHereError: no such data set, or no way to the hub.
        ConfigError: no such file, a file that is not text, a line that is not JSON, a row without
            a prompt or without what its format reads, two rows with one id, no rows at all, a
            picture that is not there or is none, or pictures for a task that takes none. Messages
            name file and line.
    """
    data = data or DataConfig()
    root = picture_root(path_or_hub_id, data.image_root)
    stem, prompts = Path(path_or_hub_id).stem, []
    for n, (place, row) in enumerate(read_rows(path_or_hub_id, data.config, data.split)):
        if _is_wanted(row, data.where):
            row = _adapted(row, place, data)
            prompts.append(_prompt(row, place, task, f"{stem}-{n}", data, root))
    if not prompts:
        asked = f" with data.where {data.where}; look at its columns" if data.where else ""
        raise ConfigError(f"'{path_or_hub_id}' holds no prompts{asked}.")
    _check_ids(prompts)
    kept = spread(prompts, limit)
    pictures = [prompt.images for prompt in kept if isinstance(prompt.images, Pictures)]
    check_pictures(pictures, path_or_hub_id)
    return kept


def _check_ids(prompts: Sequence[Prompt]) -> None:
    """Refuse two prompts of one id, which names the draws and the scores of an evaluation."""
    places: dict[str, str] = {}
    for prompt in prompts:
        first = places.setdefault(prompt.id, prompt.place)
        if first != prompt.place:
            raise ConfigError(
                f"{prompt.place} has the id {prompt.id!r} of {first}; ids name the draws and the"
                " scores of a prompt. Make them differ, or leave `id` out and rows are numbered."
            )


def fitting(prompts: Sequence[Prompt], fits: Callable[[Prompt], bool], source: str) -> list[Prompt]:
    """The prompts that are short enough, in order; how many were left out goes to the log.

    A prompt leaves with its answer and metadata, and those that stay keep their ids.

    Args:
        prompts: of one file.
        fits: whether a prompt is short enough for the model.
        source: the file, for messages.

    Raises:
        ConfigError: none is short enough, or one cannot be laid out at any length.
    """
    kept = [prompt for prompt in prompts if _fits(prompt, fits)]
    if prompts and not kept:
        raise ConfigError(
            f"all {len(prompts)} prompts of '{source}' are longer than model.max_prompt_length, or"
            " with their images and completion than the checkpoint takes; raise it, or shorten"
            " max_completion_length."
        )
    if len(kept) < len(prompts):
        logger.warning(
            "%s: %d of %d prompts are longer than model.max_prompt_length, or with their images and"
            " completion than the checkpoint takes, and left out",
            source,
            len(prompts) - len(kept),
            len(prompts),
        )
    return kept


def _fits(prompt: Prompt, fits: Callable[[Prompt], bool]) -> bool:
    try:
        return fits(prompt)
    except ValueError as error:
        raise ConfigError(f"{prompt.place or 'a prompt'}: {error}") from error


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


def _is_wanted(row: Any, where: Mapping[str, Any]) -> bool:
    """Whether a row has the values that are asked for; what is no row is refused elsewhere."""
    if not isinstance(row, dict):
        return True
    wanted = {column: v if isinstance(v, list) else [v] for column, v in where.items()}
    return all(str(row.get(column)) in map(str, allowed) for column, allowed in wanted.items())


def _adapted(row: Any, place: str, data: DataConfig) -> dict[str, Any]:
    """A row under our names."""
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    for column in data.columns.values():
        if column not in row:
            raise ConfigError(f"data.columns: {place} has no {column!r}; it has {sorted(row)}.")
    ours = {name: row[column] for name, column in data.columns.items()}
    row = {k: v for k, v in row.items() if k not in data.columns.values()} | ours
    advice = "Choose another format, or name the column in data.columns."
    return adapted(row, data.format, place, "data.format", advice)


def _prompt(
    row: dict[str, Any], place: str, task: str, default_id: str, data: DataConfig, root: Path | None
) -> Prompt:
    key = next((key for key in PROMPT_KEYS if row.get(key) is not None), "prompt")
    pictures, messages, text = picture_values(row, place), None, row.get(key)
    if isinstance(text, list):
        messages, own = read_prompt(text, place)
        _check_unworded(place, data)
        messages, pictures = placed(messages, own, pictures, place)
        text = text_of(messages[-1])
    if not isinstance(text, str) or not text.strip():
        names = ", ".join(repr(name) for name in PROMPT_KEYS)
        raise ConfigError(f"{place} has no text under {names}; it has {sorted(row)}.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(
            f"{place} has half of a surrogate pair (\\ud800 to \\udfff) in its text, which is no"
            " character. Correct or remove it."
        )
    if pictures and task in WITHOUT_IMAGES:
        raise ConfigError(
            f"{place} has pictures, and the task {task} takes words alone. Choose a task with"
            " pictures, or rename the column in data.columns to leave it out."
        )
    if data.template:
        text = _filled(data.template, {**row, "prompt": text}, place)
    if data.system:
        system = {"role": "system", "content": data.system}
        messages = [system, user_message(text, len(pictures))]
    name, answer = row.get("id"), row.get("answer")
    found = Pictures([find_picture(value, root, place) for value in pictures])
    return Prompt(
        default_id if name is None else str(name),
        task,
        text,
        messages,
        found or None,
        answer=None if answer is None else str(answer),
        metadata={k: v for k, v in row.items() if k not in ("id", "answer", key, *IMAGE_KEYS)},
        place=place,
    )


def _check_unworded(place: str, data: DataConfig) -> None:
    """A conversation is worded by its row."""
    for key, value in (("data.system", data.system), ("data.template", data.template)):
        check(not value, key, value, "empty where rows have messages", f"{place} has.")


def _filled(template: str, row: dict[str, Any], place: str) -> str:
    choices = row.get("choices")
    computed = {
        "lettered": lettered(choices if isinstance(choices, list) else ()),
        "hint": hint(row),
    }
    values = computed | {key: _shown(value) for key, value in row.items()}
    try:
        return template.format_map(values)
    except KeyError as error:
        raise ConfigError(
            f"data.template names {error.args[0]!r}, and {place} has {sorted(values)}. Write a"
            " brace that is meant twice."
        ) from error
    except (ValueError, IndexError, AttributeError) as error:
        raise ConfigError(
            f"data.template cannot be filled in: {error}. Write a brace that is meant twice."
        ) from error


def _shown(value: Any) -> Any:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return "\n".join(value) if texts else value
