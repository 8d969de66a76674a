"""Rows of a data set as pairs of a prompt and its completion, texts and images as RL reads them.

A row has a conversation under `messages`, or a prompt and a completion; in a row with a completion
the messages are its prompt. Images are parts of messages, or columns `image` or `images`
(`mmrl.data.messages`, `mmrl.data.images`) whose places may be marked by LLaVA's `<image>`.
Token ids of a completion are used unchanged.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.data.formats import adapt_row
from mmrl.data.images import LazyImages, find_image, read_image_values
from mmrl.data.messages import IMAGE, Message, is_message, message_text, read_messages
from mmrl.models.layouts.image_marks import MARK
from mmrl.objectives.options import SourceConfig
from mmrl.types import Prompt


class Pair(NamedTuple):
    """A prompt, the completion to learn (text or token ids), and the step at which each of its
    tokens was written, where the row has it."""

    given: Prompt
    completion: Any
    order: Any = None


def read_pairs(place: str, row: Any, config: SourceConfig, root: Path | None) -> list[Pair]:
    """Read the pairs of a row, one for each answer that is learned; `root` is the folder of images.
    Raises ConfigError: the row at `place` lacks a column, or something is no message, part or
    image."""
    row = adapt_row(row, config.format, place, f"{config.where}.format", "Choose another format.")
    values, messages = read_image_values(row, place), None
    completion, turns = row.get(config.completion_column), row.get("messages")
    given = turns if turns is not None else row.get(config.prompt_column)
    if given is None or (completion is None and turns is None):
        column = config.prompt_column if given is None else config.completion_column
        advice = f"Name it with {config.where}.prompt_column, completion_column or format."
        has = f"it has {sorted(row)}. {advice}"
        raise ConfigError(f"{place} has neither 'messages' nor '{column}'; {has}")
    if turns is not None or not isinstance(given, str):
        if not given or not isinstance(given, list) or not all(map(is_message, given)):
            raise ConfigError(f"{place}: the prompt is no list of role and content.")
        if completion is None:
            given = given[: _find_answers(given, place)[-1] + 1]
        messages, values = read_messages(given, values, place)
    images = [find_image(value, root, place, f"{config.where}.image_root") for value in values]
    if completion is None:
        return list(_read_answers(messages or [], images, place, config))
    text = given if isinstance(given, str) else ""
    return [Pair(_build_prompt(text, messages, images, place), completion, row.get("order"))]


def _find_answers(turns: Sequence[Message], place: str) -> list[int]:
    answers = [n for n, turn in enumerate(turns) if turn["role"] == "assistant" and n > 0]
    if not answers:
        raise ConfigError(f"{place}: no message answers another; one has the role 'assistant'.")
    return answers


def _read_answers(
    messages: list[Message], images: list[Any], place: str, config: SourceConfig
) -> Iterator[Pair]:
    """Yield each answer of a conversation that is learned, with the turns before it."""
    answers = _find_answers(messages, place)
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


def _build_prompt(
    text: str, messages: list[Message] | None, images: Sequence[Any], place: str
) -> Prompt:
    task = "image_to_text" if images else "text"
    return Prompt(place, task, text, messages, LazyImages(images) if images else None)


def _count_images(messages: Sequence[Message]) -> int:
    parts = [part for m in messages if isinstance(m["content"], list) for part in m["content"]]
    return sum(part == IMAGE for part in parts)
