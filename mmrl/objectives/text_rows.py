"""Rows of a data set as examples: columns, conversations, recorded token ids and orders.

A row has `messages`, or a prompt and a completion. Prompts go through the checkpoint's layout, so
a completion begins exactly where a sampled one would. A prompt or completion given as token ids is
taken as it is: what a model wrote need not be decoded and tokenised again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from mmrl.config import ConfigError
from mmrl.data import IMAGE_KEYS
from mmrl.objectives.text_examples import Example, ExampleConfig
from mmrl.types import Prompt
from models.text import Text

logger = logging.getLogger(__name__)


def load_examples(
    rows: Iterable[tuple[str, Any]],
    source: str,
    config: ExampleConfig,
    text: Text,
    recorded: bool = False,
) -> list[Example]:
    """Examples of a data set, in its order; what is left out is counted and logged.

    Args:
        rows: with their places, see `mmrl.rows.read_rows`.
        source: file or hub id, for messages.
        config: columns, ends and lengths.
        text: layout of the checkpoint.
        recorded: whether every completion needs a recorded order.

    Raises:
        ConfigError: a row that is no example, with its place; or nothing is left.
    """
    examples, left_out = [], Counter[str]()
    for place, row in rows:
        for prompt, completion in _pairs(row, place, config):
            example = _example(prompt, completion, row, place, config, text, recorded)
            reason = _reason(example, config)
            if reason:
                left_out[reason] += 1
            else:
                examples.append(_cut(example, _room(example, config)))
    for reason, count in sorted(left_out.items()):
        logger.warning("%s: %d examples left out, %s", source, count, reason)
    if not examples:
        reasons = ", ".join(sorted(left_out)) or "it has no rows"
        raise ConfigError(f"'{source}' holds nothing to learn: {reasons}.")
    return examples


def _pairs(row: Any, place: str, config: ExampleConfig) -> Iterator[tuple[Any, Any]]:
    """(prompt, completion) of every answer to learn in a row."""
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is not a mapping of columns but {type(row).__name__}.")
    if any(row.get(key) for key in IMAGE_KEYS):
        raise ConfigError(f"{place} has pictures, and the objective text learns words alone.")
    if row.get(config.messages_column) is None:
        for column in (config.prompt_column, config.completion_column):
            if row.get(column) is None:
                raise ConfigError(
                    f"{place} has neither '{config.messages_column}' nor '{column}'; it has"
                    f" {sorted(row)}. Name the columns with objective.<name>_column."
                )
        yield row[config.prompt_column], row[config.completion_column]
        return
    messages = row[config.messages_column]
    if not _is_conversation(messages):
        raise ConfigError(f"{place}: '{config.messages_column}' is no list of role and content.")
    answers = [n for n, turn in enumerate(messages) if turn["role"] == "assistant" and n > 0]
    if not answers:
        raise ConfigError(f"{place}: no message answers another; one has the role 'assistant'.")
    for n in answers if config.turns == "all" else answers[-1:]:
        # stripped, as the chat template does with the same answer in a later prompt
        yield messages[:n], messages[n]["content"].strip()


def _example(
    prompt: Any,
    completion: Any,
    row: dict[str, Any],
    place: str,
    config: ExampleConfig,
    text: Text,
    recorded: bool,
) -> Example:
    given = _prompt_ids(prompt, place, text)
    written, ends = completion, []
    if isinstance(completion, str):
        written = text.tokenizer(completion, add_special_tokens=False)["input_ids"]
        ends = [text.ids[end] for end in config.ends]
    ids = _checked_ids(written, f"{place}: '{config.completion_column}'", text)
    order = list(range(len(ids)))
    if recorded:
        order = _recorded_order(row.get(config.order_column), len(ids), place, config.order_column)
    last = max(order, default=-1)
    order = [*order, *(last + n + 1 for n in range(len(ends)))]
    whole = torch.tensor([*ids, *ends], dtype=torch.long)
    return Example(
        torch.tensor(given, dtype=torch.long), whole, torch.tensor(order, dtype=torch.long),
        len(whole) if ids else 0,
    )  # fmt: skip


def _prompt_ids(prompt: Any, place: str, text: Text) -> list[int]:
    if isinstance(prompt, str):
        return text.prompt_ids(Prompt(place, "text", prompt))
    if _is_conversation(prompt):
        return text.prompt_ids(Prompt(place, "text", "", prompt))
    return _checked_ids(prompt, f"{place}: the prompt", text)


def _is_conversation(value: Any) -> bool:
    return bool(value) and isinstance(value, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("content"), str) and turn.get("role")
        for turn in value
    )  # fmt: skip


def _checked_ids(value: Any, what: str, text: Text) -> list[int]:
    first, end = text.vocab
    if not isinstance(value, list) or not all(
        isinstance(i, int) and first <= i < end for i in value
    ):
        raise ConfigError(f"{what} is neither text nor a list of token ids below {end}.")
    if text.ids["mask"] in value:
        raise ConfigError(f"{what} holds the mask token, which stands for what is unknown.")
    return value


def _recorded_order(order: Any, length: int, place: str, column: str) -> list[int]:
    listed = isinstance(order, list) and all(isinstance(n, int) and n >= 0 for n in order)
    if not listed or len(order) != length:
        raise ConfigError(
            f"{place}: '{column}' must hold one step, 0 or more, for each of the {length} tokens of"
            " the completion. Record token ids with it if the text tokenises in another way."
        )
    return order


def _reason(example: Example, config: ExampleConfig) -> str:
    """Why an example is left out; empty if it is not."""
    if not example.trained:
        return "the completion is empty"
    room = _room(example, config)
    if room < (1 if config.overlong == "cut" else len(example.completion)):
        return "longer than objective.max_length or objective.completion_length"
    return ""


def _room(example: Example, config: ExampleConfig) -> int:
    """Longest completion behind the prompt."""
    room = config.max_length - len(example.prompt)
    return min(room, config.completion_length) if config.completion_length else room


def _cut(example: Example, room: int) -> Example:
    kept = min(len(example.completion), room)
    return replace(
        example, completion=example.completion[:kept], order=example.order[:kept], trained=kept
    )
