"""Examples as token ids, and how far padding extends their completions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from mmrl.objectives.source_config import SourceConfig


@dataclass(frozen=True)
class Example:
    """One prompt with one completion.

    Attributes:
        prompt: [P] int64, its text; images have no tokens here.
        completion: [n] int64, with its ends.
        order: [n] int64, step that wrote each token; ends come last, one after the other. Without
            a recorded order, from left to right.
        trained: leading tokens of the completion that are learned.
        padding: token that extends a completion.
        images: of the prompt, opened when they are read.
        cuts: number of text tokens before each image.
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
        """Positions of the prompt and its images."""
        return len(self.prompt) + self.rows


def pad_completions(examples: Sequence[Example], config: SourceConfig) -> list[Example]:
    """Extend the completions of a micro-batch as the setting `fill` says."""
    longest, whole = max(map(len, examples)), config.completion_length
    lengths = {
        "none": lambda example: len(example),
        "completion": lambda example: example.given + whole,
        "blocks": lambda example: example.given + -(-len(example.completion) // whole) * whole,
        "row": lambda example: config.max_length,
        "batch": lambda example: longest,
    }
    return [_pad(example, lengths[config.fill](example), config) for example in examples]


def _pad(example: Example, length: int, config: SourceConfig) -> Example:
    more = max(0, length - len(example))
    order = torch.arange(more) + example.order.max() + 1
    trained = more if config.trained_padding is None else min(more, config.trained_padding)
    return replace(
        example,
        completion=torch.cat((example.completion, torch.full((more,), example.padding))),
        order=torch.cat((example.order, order)),
        trained=example.trained + trained,
    )
