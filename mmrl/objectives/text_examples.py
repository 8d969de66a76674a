"""Completions to learn as token ids, and how far padding continues them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from mmrl.objectives.source_config import ExampleConfig


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
