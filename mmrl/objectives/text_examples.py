"""Completions to learn as token ids, and how far padding continues them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from PIL import Image
from torch import Tensor

from mmrl.config import check, check_choice
from mmrl.formats import FORMATS


@dataclass(kw_only=True)
class ExampleConfig:
    """How rows become examples."""

    where: ClassVar[str] = "objective"
    """Dotted key of these settings, for messages."""

    format: str = "rows"
    """Data set whose columns the rows have, see `mmrl.formats`; `rows` leaves them as they are."""
    prompt_column: str = "prompt"
    """Text, a list of messages, or a list of token ids."""
    completion_column: str = "completion"
    """Text, or a list of token ids, to which nothing is added."""
    messages_column: str = "messages"
    """Conversation, a list of `role` and `content`; read where a row has it. Beside a completion it
    is the prompt."""
    order_column: str = "order"
    """Step at which each token of the completion was written, for `trace`."""
    image_root: str | None = None
    """Folder of the pictures that rows name by a path, and which no path may leave; null is the
    folder of the file."""
    chat_template: bool | None = None
    """Whether a text prompt becomes the message of a user; null does so where the tokenizer has a
    chat template."""
    turns: Literal["last", "all"] = "last"
    """Answers of a conversation to learn: the last one, or each of them behind those before it."""
    ends: list[str] = field(default_factory=lambda: ["eot", "eos"])
    """What is put behind a text: `eot` ends a turn, `eos` a document; [] leaves it without end. An
    answer about images never has the second, which no sampler writes there."""
    max_length: int = 1024
    """Longest example in tokens, prompt with its images and ends included."""
    overlong: Literal["drop", "cut"] = "drop"
    """What happens to a longer one; a cut completion has no end."""
    fill: Literal["none", "completion", "blocks", "row", "batch"] = "none"
    """How far completions are continued with eos (about images: eot), as samplers do behind an end:
    not at all; to `completion_length`; to a multiple of it; until the row has `max_length`; until
    it is as long as the longest of its micro-batch, as LLaDA does. Without, the number of masks
    gives away the length, which no sampler's canvas does."""
    completion_length: int = 0
    """Tokens of a completion with `fill: completion`, of a block with `fill: blocks`."""
    trained_padding: int | None = None
    """How many of those tokens are learned and belong to the length of the completion, null all;
    the others are always masked, like the unwritten rest of a sampler's canvas."""

    def __post_init__(self) -> None:
        where, padding = self.where, self.trained_padding
        check_choice(f"{where}.format", self.format, FORMATS)
        for end in self.ends:
            check(end in ("eot", "eos"), f"{where}.ends", self.ends, "a list of eot, eos")
        check(self.max_length >= 2, f"{where}.max_length", self.max_length, "at least 2")
        check(
            padding is None or padding >= 0,
            f"{where}.trained_padding", padding, "null or at least 0",
        )  # fmt: skip
        check(
            (self.completion_length > 0) == (self.fill in ("completion", "blocks")),
            f"{where}.completion_length", self.completion_length,
            "positive with fill: completion or blocks, and 0 without",
        )  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One prompt with one completion.

    Attributes:
        prompt: [P] int64, its words; images have no tokens here.
        completion: [n] int64, with its ends.
        order: [n] int64, step that wrote each token; ends come last, one after the other. Without
            a record the tokens count from left to right.
        trained: leading tokens of the completion that are learned.
        padding: id that stands behind the end of a completion.
        images: of the prompt, opened when they are taken.
        cuts: how many words stand before each image.
        rows: positions that the images take, by the sizes in their headers.
    """

    prompt: Tensor
    completion: Tensor
    order: Tensor
    trained: int
    padding: int
    images: Sequence[Image.Image] = ()
    cuts: tuple[int, ...] = ()
    rows: int = 0

    def __len__(self) -> int:
        return self.given + len(self.completion)

    @property
    def given(self) -> int:
        """Positions of the prompt with its images."""
        return len(self.prompt) + self.rows


def filled(examples: Sequence[Example], config: ExampleConfig) -> list[Example]:
    """The examples of one micro-batch with their completions continued, see `fill`."""
    longest, whole = max(map(len, examples)), config.completion_length
    lengths = {
        "none": lambda example: len(example),
        "completion": lambda example: example.given + whole,
        "blocks": lambda example: example.given + -(-len(example.completion) // whole) * whole,
        "row": lambda example: config.max_length,
        "batch": lambda example: longest,
    }
    return [_filled(example, lengths[config.fill](example), config) for example in examples]


def _filled(example: Example, length: int, config: ExampleConfig) -> Example:
    more = max(0, length - len(example))
    order = torch.arange(more) + example.order.max() + 1
    trained = more if config.trained_padding is None else min(more, config.trained_padding)
    return replace(
        example,
        completion=torch.cat((example.completion, torch.full((more,), example.padding))),
        order=torch.cat((example.order, order)),
        trained=example.trained + trained,
    )
