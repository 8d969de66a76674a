"""Rows of a data set as pairs of a prompt and its completion, texts and images as RL reads them.

A row has a conversation under `messages`, or a prompt and a completion; in a row with a completion
the messages are its prompt. Images are parts of messages, or columns `image` or `images`
(`mmrl.data.messages`, `mmrl.data.image_sources`) whose places may be marked by LLaVA's `<image>`.
Token ids of a prompt or completion are used unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.data.formats import adapt_row, restore_nested
from mmrl.data.image_sources import find_image, read_image_values
from mmrl.data.lazy_images import LazyImages
from mmrl.data.messages import IMAGE, Message, assign_images, message_text, read_messages
from mmrl.models.layouts.image_marks import MARK
from mmrl.objectives.data_config import SourceConfig
from mmrl.types import Prompt

Find = Callable[[Any], Any]
"""Finds an image by the value of a row."""


class Pair(NamedTuple):
    """A prompt or its token ids, the completion to learn (text or token ids), and the step at which
    each of its tokens was written, where the row has it."""

    given: Prompt | list[int]
    completion: Any
    order: Any = None


def read_pairs(row: Any, place: str, config: SourceConfig, root: Path | None) -> list[Pair]:
    """Read the pairs of a row, one for each answer that is learned.

    Args:
        row: from the data set.
        place: of the row, for messages.
        config: format and columns.
        root: folder of the images, see `find_image`.

    Raises:
        ConfigError: the row lacks a column, or something is no message, part or image.
    """
    find = partial(find_image, root=root, place=place, key=f"{config.where}.image_root")
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    row = restore_nested(row)
    if config.format != "rows":
        advice = "Choose another format."
        row = adapt_row(row, config.format, place, f"{config.where}.format", advice)
    images = [find(value) for value in read_image_values(row, place)]
    completion, turns = row.get(config.completion_column), row.get("messages")
    if turns is not None and completion is None:
        return list(_read_answers(turns, images, place, config, find))
    given = turns if turns is not None else row.get(config.prompt_column)
    for column, value in ((config.prompt_column, given), (config.completion_column, completion)):
        if value is None:
            raise ConfigError(
                f"{place} has neither 'messages' nor '{column}'; it has {sorted(row)}. Name the"
                f" columns with {config.where}.prompt_column and completion_column, or choose"
                f" another {config.where}.format."
            )
    return [Pair(_read_prompt(given, images, place, find), completion, row.get("order"))]


def _read_prompt(given: Any, images: list[Any], place: str, find: Find) -> Prompt | list[int]:
    if isinstance(given, str):
        return _build_prompt(given, None, images, place)
    if _is_conversation(given):
        return _build_prompt("", *_read_messages(given, images, place, find), place)
    if images:
        raise ConfigError(f"{place} has images, and a prompt of token ids to show them in.")
    return given


def _read_answers(
    turns: Any, images: list[Any], place: str, config: SourceConfig, find: Find
) -> Iterator[Pair]:
    """Yield each answer of a conversation that is learned, with the turns before it."""
    if not _is_conversation(turns):
        raise ConfigError(f"{place}: 'messages' is no list of role and content.")
    answers = [n for n, turn in enumerate(turns) if turn["role"] == "assistant" and n > 0]
    if not answers:
        raise ConfigError(f"{place}: no message answers another; one has the role 'assistant'.")
    messages, images = _read_messages(turns[: answers[-1] + 1], images, place, find)
    if _count_images(messages[-1:]):
        raise ConfigError(f"{place}: the last answer holds an image, and an answer must be text.")
    marked = bool(images) and any(MARK in message_text(message) for message in messages)
    for n in answers if config.turns == "all" else answers[-1:]:
        before, count = messages[:n], _count_images(messages[:n])
        if marked:  # the text itself says where the images are
            before = [{**message, "content": message_text(message)} for message in before]
            count = sum(message["content"].count(MARK) for message in before)
        # stripped, as the chat template does with the same answer in a later prompt
        answer = message_text(messages[n]).strip()
        yield Pair(_build_prompt("", before, images[:count], place), answer)


def _read_messages(
    turns: Sequence[Any], images: list[Any], place: str, find: Find
) -> tuple[list[Message], list[Any]]:
    """Messages with bare parts, and their images in order."""
    messages, named = read_messages(turns, place)
    found = [None if value is None else find(value) for value in named]
    return assign_images(messages, found, images, place)


def _build_prompt(
    text: str, messages: list[Message] | None, images: Sequence[Any], place: str
) -> Prompt:
    task = "image_to_text" if images else "text"
    return Prompt(place, task, text, messages, LazyImages(images) if images else None)


def _is_conversation(value: Any) -> bool:
    def is_message(turn: Any) -> bool:
        named = isinstance(turn, dict) and turn.get("role")
        return bool(named) and isinstance(turn.get("content"), str | list)

    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def _count_images(messages: Sequence[Message]) -> int:
    parts = [part for m in messages if isinstance(m["content"], list) for part in m["content"]]
    return sum(part == IMAGE for part in parts)
