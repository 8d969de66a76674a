"""Prompt sets: rows of files or of the Hugging Face hub become prompts.

A row has its prompt under `messages`, `prompt`, `question` or `text`, optionally an `id`, an
`answer` and the `assistant_prefill` that its completions begin with; everything else is metadata
for the rewards. Other column names are mapped to these by
`data.format` (a known data set) or `data.columns` (single names). GenEval's files (`tag`,
`include`, `exclude`, `prompt`) load unchanged.

Images are in `image` or `images`, one or a list, or in the parts of messages, in the forms of
`mmrl.data.images`. A prompt opens them when its `images` are read. That of an edit (task
`image_edit`) is its source image, and its text the instruction.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mmrl.config import ConfigError, check
from mmrl.data.data_config import DataConfig
from mmrl.data.formats import GROUPED, adapt_row
from mmrl.data.images import IMAGE_KEYS, LazyImages, find_image, find_image_root, read_image_values
from mmrl.data.messages import message_text, read_messages
from mmrl.data.questions import choose_hint, letter_choices
from mmrl.data.rows import read_rows
from mmrl.models.task_names import FROM_IMAGE
from mmrl.rewards.parsing.metadata import write_value
from mmrl.types import Prompt

T = TypeVar("T")
logger = logging.getLogger(__name__)

PROMPT_KEYS = ("messages", "prompt", "question", "text")
"""Columns of the prompt; the first one that a row has is read."""
PROMPT_PARTS = ("id", "answer", "assistant_prefill")
"""Columns that are no metadata."""
WITHOUT_IMAGES = ("text", "text_to_image", "text_to_video")
"""Tasks whose prompts have no images."""


def load_prompts(
    path_or_hub_id: str, task: str, data: DataConfig | None = None, limit: int | None = None
) -> list[Prompt]:
    """Load the prompts of a task from a file or a hub data set, see `mmrl.data.rows.read_rows`;
    with a `limit` at most so many, see `spread`. Without `data` rows have the names above.

    Raises:
        NotHereError: a data set of the hub that does not exist or cannot be downloaded.
        ConfigError: a file or row that cannot be read as prompts of this task, with file and line.
    """
    data = data or DataConfig()
    root = find_image_root(path_or_hub_id, data.image_root)
    stem, prompts = Path(path_or_hub_id).stem, []
    rows = read_rows(path_or_hub_id, data.config, data.split)
    if data.format in GROUPED:
        rows = GROUPED[data.format](rows)
    for n, (place, row) in enumerate(rows):
        if _is_wanted(row, data.where):
            row = _rename_columns(row, place, data)
            prompts.append(_read_prompt(row, place, task, f"{stem}-{n}", data, root))
    if not prompts:
        asked = f" with data.where {data.where}; look at its columns" if data.where else ""
        raise ConfigError(f"'{path_or_hub_id}' holds no prompts{asked}.")
    _check_ids(prompts)
    kept = spread(prompts, limit)
    for prompt in kept:
        _ = prompt.image_sizes  # of the header, where a broken file shows itself
    return kept


def _check_ids(prompts: Sequence[Prompt]) -> None:
    places: dict[str, str] = {}
    for prompt in prompts:
        first = places.setdefault(prompt.id, prompt.place)
        if first != prompt.place:
            advice = "Make ids differ, or leave `id` out and rows are numbered."
            raise ConfigError(f"{prompt.place} has the id {prompt.id!r} of {first}. {advice}")


def prefill(prompts: list[Prompt], text: str) -> list[Prompt]:
    """The prompts with a text that their completions begin with; empty for none."""
    return [replace(prompt, prefill=text) for prompt in prompts] if text else prompts


def drop_long(
    prompts: Sequence[Prompt],
    fits: Callable[[Prompt], bool],
    source: str,
    cuts: Callable[[Prompt], bool] = lambda prompt: False,
    rule: str | None = None,
) -> list[Prompt]:
    """Drop the prompts that are too long, as `fits` says; warnings count them, and those that a
    model takes without a part, as `cuts` says. `rule` is `model.long_prompts`; None leaves out what
    does not fit.

    Raises ConfigError, with the file: all are too long, one has no layout at any length, or one is
    too long and the rule refuses it, or asks for a cut that its layout does not make."""
    kept = [prompt for prompt in prompts if _fits(prompt, fits)]
    if rule in ("leave_out", "refuse"):
        kept = [prompt for prompt in kept if not cuts(prompt)]
    if rule in ("cut", "refuse") and len(kept) < len(prompts):
        first = next(n for n, own in enumerate(prompts) if n == len(kept) or own is not kept[n])
        place = prompts[first].place or prompts[first].id
        advice = f"{place} is longer than model.max_prompt_length; raise it, or leave_out such."
        allowed = "leave_out, or null, with prompts that are too long"
        check(False, "model.long_prompts", rule, allowed, advice)
    long = "longer than model.max_prompt_length, or with images and completion than the checkpoint"
    if prompts and not kept:
        advice = "raise it, or shorten max_completion_length"
        raise ConfigError(f"all {len(prompts)} prompts of '{source}' are {long} takes; {advice}.")
    if left := len(prompts) - len(kept):
        text = "%s: %d of %d prompts are %s takes, and left out"
        logger.warning(text, source, left, len(prompts), long)
    if cut := sum(map(cuts, kept)):
        text = "%s: %d of %d prompts are cut to model.max_prompt_length"
        logger.warning(text, source, cut, len(kept))
    return kept


def _fits(prompt: Prompt, fits: Callable[[Prompt], bool]) -> bool:
    try:
        return fits(prompt)
    except ValueError as error:
        place = prompt.place or "a prompt"
        raise ConfigError(str(error) if place in str(error) else f"{place}: {error}") from error


def spread(rows: Sequence[T], limit: int | None) -> list[T]:
    """Take at most `limit` rows at even distances, so that a file sorted by tag keeps all its tags.
    Raises ConfigError: a limit below 1."""
    if limit is None:
        return list(rows)
    check(limit >= 1, "limit", limit, "null or at least 1")
    count = min(limit, len(rows))
    return [rows[n * len(rows) // count] for n in range(count)]


def _is_wanted(row: Any, where: Mapping[str, Any]) -> bool:
    """Whether a row has the values of `data.where`; `_rename_columns` refuses what is no row."""

    def read(column: str) -> str:
        counted = re.fullmatch(r"len\((.+)\)", column)
        value = row.get(counted[1] if counted else column)
        return str(len(value) if counted and isinstance(value, Sized) else value)

    wanted = {column: v if isinstance(v, list) else [v] for column, v in where.items()}
    return not isinstance(row, dict) or all(
        read(column) in map(str, allowed) for column, allowed in wanted.items()
    )


def _rename_columns(row: Any, place: str, data: DataConfig) -> dict[str, Any]:
    """A row with the column names of this module, by `data.columns` and then by `data.format`."""
    if isinstance(row, dict):
        for column in data.columns.values():
            if column not in row:
                raise ConfigError(f"data.columns: {place} has no {column!r}; it has {sorted(row)}.")
        renamed = {name: row[column] for name, column in data.columns.items()}
        row = {k: v for k, v in row.items() if k not in data.columns.values()} | renamed
    advice = "Choose another format, or name the column in data.columns."
    return adapt_row(row, data.format, place, "data.format", advice)


def _read_prompt(
    row: dict[str, Any], place: str, task: str, default_id: str, data: DataConfig, root: Path | None
) -> Prompt:
    key = next((key for key in PROMPT_KEYS if row.get(key) is not None), "prompt")
    images, messages, text = read_image_values(row, place), None, row.get(key)
    if isinstance(text, list):
        messages, images = read_messages(text, images, place)
        if not messages or messages[-1]["role"] != "user":
            raise ConfigError(f"{place}: the messages must end with one of the user.")
        allowed = "empty where rows have messages"
        check(not data.template, "data.template", data.template, allowed, f"{place} has.")
        text = message_text(messages[-1])
    if not isinstance(text, str) or not text.strip():
        names = ", ".join(repr(name) for name in PROMPT_KEYS)
        raise ConfigError(f"{place} has no text under {names}; it has {sorted(row)}.")
    if images and task in WITHOUT_IMAGES:
        advice = "Take another task, or rename the column in data.columns to leave it out."
        raise ConfigError(f"{place} has images, and the task {task} takes none. {advice}")
    if task in FROM_IMAGE and not images:
        advice = "Name its column with data.columns, such as {image: source_image}."
        raise ConfigError(f"{place} has no image, from which the task {task} starts. {advice}")
    if data.template:
        text = _fill(data.template, {**row, "prompt": text}, place)
    answer, prefix = (_text_of(row, name, place) for name in ("answer", "assistant_prefill"))
    return Prompt(
        default_id if row.get("id") is None else str(row["id"]),
        task,
        text,
        messages,
        LazyImages([find_image(value, root, place) for value in images]) if images else None,
        answer=answer,
        metadata={k: v for k, v in row.items() if k not in (*PROMPT_PARTS, key, *IMAGE_KEYS)},
        prefill=prefix or "",
        place=place,
    )


def _text_of(row: Mapping[str, Any], name: str, place: str) -> str | None:
    try:
        return None if row.get(name) is None else write_value(row[name], name)
    except ValueError as error:
        advice = f"Name the column of the text in data.columns, such as {{{name}: solution}}"
        raise ConfigError(f"{place}: {error}. {advice}, or correct the row.") from error


def _fill(template: str, row: dict[str, Any], place: str) -> str:
    choices = row.get("choices")
    values = {
        "lettered": letter_choices(choices if isinstance(choices, list) else ()),
        "hint": choose_hint(row),
        **{key: _join_lines(value) for key, value in row.items()},
    }
    braces = "Write a brace that is meant twice."
    try:
        return template.format_map(values)
    except KeyError as error:
        has = f"and {place} has {sorted(values)}. {braces}"
        raise ConfigError(f"data.template names {error.args[0]!r}, {has}") from error
    except (ValueError, IndexError, AttributeError) as error:
        raise ConfigError(f"data.template cannot be filled in: {error}. {braces}") from error


def _join_lines(value: Any) -> Any:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return "\n".join(value) if texts else value
