"""Completions to learn as token ids, and how far padding continues them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from mmrl.config import check


@dataclass(kw_only=True)
class ExampleConfig:
    """How rows become examples."""

    prompt_column: str = "prompt"
    """Text, a list of messages, or a list of token ids."""
    completion_column: str = "completion"
    """Text, or a list of token ids, to which nothing is added."""
    messages_column: str = "messages"
    """Conversation, a list of `role` and `content`; read where a row has it."""
    order_column: str = "order"
    """Step at which each token of the completion was written, for `trace`."""
    chat_template: bool | None = None
    """Whether a text prompt becomes the message of a user; null does so where the tokenizer has a
    chat template."""
    turns: Literal["last", "all"] = "last"
    """Answers of a conversation to learn: the last one, or each of them behind those before it."""
    ends: list[str] = field(default_factory=lambda: ["eot", "eos"])
    """What is put behind a text: `eot` ends a turn, `eos` a document; [] leaves it without end."""
    max_length: int = 1024
    """Longest example in tokens, prompt and ends included."""
    overlong: Literal["drop", "cut"] = "drop"
    """What happens to a longer one; a cut completion has no end."""
    fill: Literal["none", "completion", "row", "batch"] = "none"
    """How far completions are continued with eos: not at all; to `completion_length`; until the row
    has `max_length`; until it is as long as the longest of its micro-batch, as LLaDA does. Without,
    the number of masks gives away the length, which no sampler's canvas does."""
    completion_length: int = 0
    """Tokens of a completion with `fill: completion`."""
    trained_padding: int | None = None
    """How many of those eos are learned and belong to the length of the completion, null all; the
    others are always masked, like the unwritten rest of a sampler's canvas."""

    def __post_init__(self) -> None:
        for end in self.ends:
            check(end in ("eot", "eos"), "objective.ends", self.ends, "a list of eot, eos")
        check(self.max_length >= 2, "objective.max_length", self.max_length, "at least 2")
        padding = self.trained_padding
        check(
            padding is None or padding >= 0,
            "objective.trained_padding", padding, "null or at least 0",
        )  # fmt: skip
        check(
            (self.completion_length > 0) == (self.fill == "completion"),
            "objective.completion_length", self.completion_length,
            "positive with fill: completion, and 0 without",
        )  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One prompt with one completion.

    Attributes:
        prompt: [P] int64.
        completion: [n] int64, with its ends.
        order: [n] int64, step that wrote each token; ends come last, one after the other. Without
            a record the tokens count from left to right.
        trained: leading tokens of the completion that are learned.
    """

    prompt: Tensor
    completion: Tensor
    order: Tensor
    trained: int

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


def filled(examples: Sequence[Example], config: ExampleConfig, eos: int) -> list[Example]:
    """The examples of one micro-batch with their completions continued by eos, see `fill`."""
    longest = max(map(len, examples))
    lengths = {
        "none": lambda example: len(example),
        "completion": lambda example: len(example.prompt) + config.completion_length,
        "row": lambda example: config.max_length,
        "batch": lambda example: longest,
    }
    return [_filled(example, lengths[config.fill](example), config, eos) for example in examples]


def _filled(example: Example, length: int, config: ExampleConfig, eos: int) -> Example:
    more = max(0, length - len(example))
    order = torch.arange(more) + example.order.max() + 1
    trained = more if config.trained_padding is None else min(more, config.trained_padding)
    return replace(
        example,
        completion=torch.cat((example.completion, torch.full((more,), eos))),
        order=torch.cat((example.order, order)),
        trained=example.trained + trained,
    )
