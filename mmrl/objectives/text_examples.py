"""Rows of a data set as examples: token ids of prompts and completions, recorded orders, lengths.

The checkpoint's layouts render the prompts, so a completion begins exactly where a sampled one
would. Images are not opened; the sizes in their headers give the positions that they take.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.data.images import find_image_root
from mmrl.data.stream import read_items
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.objectives.answer_layouts import AnswerLayouts
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.options import SourceConfig
from mmrl.objectives.text_pairs import Pair, read_pairs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """One prompt with one completion, [P] and [n] int64; images have no tokens here, but take so
    many `rows` by the sizes in their headers, after `cuts` tokens of text each.

    `order` [n] int64 is the step that wrote each token; ends come last, one after the other.
    Without a recorded order it is from left to right. The first `trained` tokens are learned, and
    `padding` is the token that extends a completion."""

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

    def truncate(self, length: int) -> "Example":
        """The example with at most `length` tokens of its completion."""
        return replace(
            self,
            completion=self.completion[:length],
            order=self.order[:length],
            trained=min(self.trained, length),
        )

    def pad(self, more: int, trained: int | None) -> "Example":
        """The example with `more` tokens of padding, `trained` of them learned; None for all."""
        return replace(
            self,
            completion=torch.cat((self.completion, torch.full((more,), self.padding))),
            order=torch.cat((self.order, torch.arange(more) + self.order.max() + 1)),
            trained=self.trained + (more if trained is None else min(more, trained)),
        )


class ExampleReader:
    """Makes examples of the rows of a data set; `left_out` counts those left out, by reason."""

    def __init__(self, config: SourceConfig, layouts: AnswerLayouts) -> None:
        self.config, self.layouts = config, layouts
        self.root = find_image_root(config.data, config.image_root, f"{config.where}.image_root")
        self.left_out = Counter[str]()

    def read(self, place: str, row: Any) -> list[Example]:
        """The examples of a row that can be learned. Raises ConfigError: a row that is no example;
        the message names its place."""
        examples, config = [], self.config
        for pair in read_pairs(place, row, config, self.root):
            example = self._read_example(pair, place)
            room, whole = config.max_length - example.given, config.completion_length
            if config.fill == "blocks":
                room = room // whole * whole
            elif whole:
                room = min(room, whole)
            if not example.trained:
                self.left_out["the completion is empty"] += 1
            elif room < (1 if config.overlong == "cut" else len(example.completion)):
                limits = f"{config.where}.max_length or {config.where}.completion_length"
                self.left_out[f"longer than {limits}"] += 1
            else:
                examples.append(example.truncate(room))
        return examples

    def read_all(self) -> list[Example]:
        """Read the examples of the whole data set, in its order; log how many are left out and why.
        Raises ConfigError: a row that is no example, with its place; or nothing is left."""
        try:
            return read_items(self.config.source, self.read)
        finally:
            self.report()

    def report(self) -> None:
        """Log how many were left out since the last report, and why."""
        for reason, count in sorted(self.left_out.items()):
            logger.warning("%s: %d examples left out, %s", self.config.data, count, reason)
        self.left_out.clear()

    def _read_example(self, pair: Pair, place: str) -> Example:
        text, about, given = self.layouts.text, self.layouts.image_to_text, pair.given
        shown: dict[str, Any] = {}
        if given.images is None:
            prompt, padding, banned = text.prompt_ids(given), text.stop_ids[0], ()
        elif about is None:
            advice = "Take LLaDA-V, or name the tokenizer of a checkpoint that reads codes (vq)."
            raise ConfigError(f"{place} has images, and the network cannot see them. {advice}")
        else:
            try:
                pieces = about.pieces(given)
            except ValueError as error:  # it names the place
                raise ConfigError(f"{error}.") from error
            _ = given.image_sizes  # of the headers, where broken files show themselves
            prompt = [token for piece in pieces for token in piece]
            padding, banned = about.stop_ids[0], about.banned
            cuts = tuple(accumulate(len(piece) for piece in pieces[:-1]))
            shown = {"images": given.images, "cuts": cuts, "rows": about.positions(given)}
        value, ends = pair.completion, []
        if isinstance(value, str):
            value = text.tokenizer(value, add_special_tokens=False)["input_ids"]
            ids = [text.ids[end] for end in self.config.ends]
            ends = [end for end in dict.fromkeys(ids) if end not in banned]
        ids = _check_ids(value, f"{place}: '{self.config.completion_column}'", text)
        order = list(range(len(ids)))
        if CORRUPTIONS[self.config.corruption["name"]].recorded:
            order = _check_order(pair.order, len(ids), place)
        last = max(order, default=-1)
        order = [*order, *(last + n + 1 for n in range(len(ends)))]
        return Example(
            prompt=torch.tensor(prompt, dtype=torch.long),
            completion=torch.tensor([*ids, *ends], dtype=torch.long),
            order=torch.tensor(order, dtype=torch.long),
            trained=len(order) if ids else 0,
            padding=padding,
            **shown,
        )


def _check_ids(value: Any, what: str, text: TextLayout) -> list[int]:
    first, end = text.vocab
    listed = isinstance(value, list)
    if not listed or not all(isinstance(i, int) and first <= i < end for i in value):
        raise ConfigError(f"{what} is neither text nor a list of token ids below {end}.")
    if text.ids.get("mask") in value:
        raise ConfigError(f"{what} holds the mask token, which means an unknown token.")
    return value


def _check_order(order: Any, length: int, place: str) -> list[int]:
    listed = isinstance(order, list) and all(isinstance(n, int) and n >= 0 for n in order)
    if not listed or len(order) != length:
        of = f"for each of the {length} tokens of the completion; record token ids with it"
        raise ConfigError(f"{place}: 'order' must hold one step, 0 or more, {of}.")
    return order
