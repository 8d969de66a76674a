"""Rows of a data set as pairs of a prompt and its completion, words and images as RL reads them.

A row has a conversation under `messages`, or a prompt and a completion; with a completion beside
them, messages are its prompt. Images stand in the parts of messages, or beside them under `image`
or `images` (`mmrl.data.messages`, `mmrl.data.image_sources`), and where words hold LLaVA's
`<image>`, there. A prompt or completion given as token ids is taken as it is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.data.formats import adapt_row
from mmrl.data.image_sources import find_image, read_image_values
from mmrl.data.lazy_images import LazyImages
from mmrl.data.messages import IMAGE, Message, assign_images, message_text, read_messages
from mmrl.objectives.source_config import ExampleConfig
from mmrl.types import Prompt
from models.layouts.image_marks import MARK


class Pair(NamedTuple):
    """What is given and what is learned: a prompt or its token ids, a text or token ids."""

    given: Prompt | list[int]
    completion: Any


def read_pairs(
    row: Any, place: str, config: ExampleConfig, root: Path | None
) -> tuple[dict[str, Any], list[Pair]]:
    """The pairs of a row, one for each of its answers that is learned, and the row as it was read.

    Args:
        row: as it stands in the data set.
        place: of the row, for messages.
        config: format and columns.
        root: folder of the images, see `find_image`.

    Raises:
        ConfigError: the row lacks a column, or something is no message, part or image.
    """
    row = _formatted(row, place, config)
    beside = [
        find_image(value, root, place, f"{config.where}.image_root")
        for value in read_image_values(row, place)
    ]
    completion = row.get(config.completion_column)
    turns = row.get(config.messages_column)
    if turns is not None and completion is None:
        return row, list(_answers(turns, beside, place, config, root))
    given = turns if turns is not None else row.get(config.prompt_column)
    for column, value in ((config.prompt_column, given), (config.completion_column, completion)):
        if value is None:
            raise ConfigError(
                f"{place} has neither '{config.messages_column}' nor '{column}'; it has"
                f" {sorted(row)}. Name the columns with {config.where}.<name>_column."
            )
    return row, [Pair(_prompt(given, beside, place, config, root), completion)]


def _formatted(row: Any, place: str, config: ExampleConfig) -> dict[str, Any]:
    """A row under our names; `rows` are taken as they are, also without a prompt."""
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    if config.format == "rows":
        return row
    return adapt_row(row, config.format, place, f"{config.where}.format", "Choose another format.")


def _prompt(
    given: Any, beside: list[Any], place: str, config: ExampleConfig, root: Path | None
) -> Prompt | list[int]:
    if isinstance(given, str):
        return prompt_of(given, None, beside, place)
    if is_conversation(given):
        return prompt_of("", *_shown(given, beside, place, config, root), place)
    if beside:
        raise ConfigError(f"{place} has images, and a prompt of token ids to show them in.")
    return given


def _answers(
    turns: Any, beside: list[Any], place: str, config: ExampleConfig, root: Path | None
) -> Iterator[Pair]:
    """Each answer of a conversation that is learned, behind what stands before it."""
    if not is_conversation(turns):
        raise ConfigError(f"{place}: '{config.messages_column}' is no list of role and content.")
    answers = [n for n, turn in enumerate(turns) if turn["role"] == "assistant" and n > 0]
    if not answers:
        raise ConfigError(f"{place}: no message answers another; one has the role 'assistant'.")
    messages, images = _shown(turns[: answers[-1] + 1], beside, place, config, root)
    if _pictures_in(messages[-1:]):
        raise ConfigError(f"{place}: the last answer holds an image, and answers are words.")
    marked = bool(images) and any(MARK in message_text(message) for message in messages)
    for n in answers if config.turns == "all" else answers[-1:]:
        before = _unmarked(messages[:n]) if marked else messages[:n]
        count = _marks_in(before) if marked else _pictures_in(before)
        # stripped, as the chat template does with the same answer in a later prompt
        yield Pair(prompt_of("", before, images[:count], place), message_text(messages[n]).strip())


def _shown(
    turns: Sequence[Any], beside: list[Any], place: str, config: ExampleConfig, root: Path | None
) -> tuple[list[Message], list[Any]]:
    """Messages with bare parts, and their images in order."""
    messages, own = read_messages(turns, place)
    named = [
        None if value is None else find_image(value, root, place, f"{config.where}.image_root")
        for value in own
    ]
    return assign_images(messages, named, beside, place)


def prompt_of(
    text: str, messages: list[Message] | None, images: Sequence[Any], place: str
) -> Prompt:
    """A prompt for the layout of its kind, named by its place."""
    task = "image_to_text" if images else "text"
    return Prompt(place, task, text, messages, LazyImages(images) if images else None)


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages."""
    return (
        bool(value)
        and isinstance(value, list)
        and all(
            isinstance(turn, dict)
            and isinstance(turn.get("content"), str | list)
            and turn.get("role")
            for turn in value
        )
    )


def _pictures_in(messages: Sequence[Message]) -> int:
    parts = [part for m in messages if isinstance(m["content"], list) for part in m["content"]]
    return sum(part == IMAGE for part in parts)


def _marks_in(messages: Sequence[Message]) -> int:
    return sum(message_text(message).count(MARK) for message in messages)


def _unmarked(messages: Sequence[Message]) -> list[Message]:
    """Messages as words alone, for images whose places the words mark themselves."""
    return [{**message, "content": message_text(message)} for message in messages]
