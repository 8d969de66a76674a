"""Rows of a data set as examples: token ids of prompts and completions, recorded orders, lengths.

Prompts go through the checkpoint's layouts, those with images through that of questions about
images, so a completion begins exactly where a sampled one would. Images stay closed; how many
positions they take follows from the sizes in their headers.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from mmrl.config import ConfigError
from mmrl.data.lazy_images import LazyImages, check_images
from mmrl.objectives.source_config import ExampleConfig
from mmrl.objectives.text_examples import Example
from mmrl.objectives.text_pairs import Pair, read_pairs
from mmrl.types import Prompt
from models.layouts.question_layout import Album, QuestionLayout
from models.layouts.text_layout import TextLayout

logger = logging.getLogger(__name__)


@dataclass
class AnswerLayouts:
    """Layouts of a checkpoint whose completions are text, given text or images."""

    text: TextLayout
    image_to_text: QuestionLayout | None = None

    @cached_property
    def codes(self) -> Album | None:
        """Images as codes, which never change, so that each is encoded once in a run."""
        layout = self.image_to_text
        return layout.album() if layout is not None and layout.needs_vq else None

    def album(self) -> Album | None:
        """For the images of a micro-batch; None where there are no images."""
        layout = self.image_to_text
        return self.codes if layout is None or layout.needs_vq else layout.album()


def load_examples(
    rows: Iterable[tuple[str, Any]],
    source: str,
    config: ExampleConfig,
    layouts: AnswerLayouts,
    root: Path | None = None,
    recorded: bool = False,
) -> list[Example]:
    """Examples of a data set, in its order; what is left out is counted and logged.

    Args:
        rows: with their places, see `mmrl.data.rows.read_rows`.
        source: file or hub id, for messages.
        config: columns, ends and lengths.
        layouts: layouts of the checkpoint.
        root: folder of the images, see `mmrl.data.image_sources`.
        recorded: whether every completion needs a recorded order.

    Raises:
        ConfigError: a row that is no example, with its place; or nothing is left.
    """
    examples, left_out = [], Counter[str]()
    for place, row in rows:
        row, pairs = read_pairs(row, place, config, root)
        for pair in pairs:
            example = _example(pair, row, place, config, layouts, recorded)
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
    check_images([e.images for e in examples if isinstance(e.images, LazyImages)], source)
    return examples


def _example(
    pair: Pair,
    row: Mapping[str, Any],
    place: str,
    config: ExampleConfig,
    layouts: AnswerLayouts,
    recorded: bool,
) -> Example:
    example, written, ends = _given(pair.given, place, layouts), pair.completion, []
    if isinstance(written, int | float) and not isinstance(written, bool):
        written = str(written)
    if isinstance(written, str):
        written = layouts.text.tokenizer(written, add_special_tokens=False)["input_ids"]
        banned = layouts.image_to_text.banned if example.images and layouts.image_to_text else ()
        ends = [layouts.text.ids[end] for end in config.ends if layouts.text.ids[end] not in banned]
    ids = _checked_ids(written, f"{place}: '{config.completion_column}'", layouts.text)
    order = list(range(len(ids)))
    if recorded:
        order = _recorded_order(row.get(config.order_column), len(ids), place, config.order_column)
    last = max(order, default=-1)
    order = [*order, *(last + n + 1 for n in range(len(ends)))]
    return replace(
        example,
        completion=torch.tensor([*ids, *ends], dtype=torch.long),
        order=torch.tensor(order, dtype=torch.long),
        trained=len(ids) + len(ends) if ids else 0,
    )


def _given(given: Prompt | list[int], place: str, layouts: AnswerLayouts) -> Example:
    """An example without its completion."""
    nothing, shown = torch.zeros(0, dtype=torch.long), {}
    layout: TextLayout | QuestionLayout = layouts.text
    if not isinstance(given, Prompt):
        pieces = [_checked_ids(given, f"{place}: the prompt", layouts.text)]
    elif given.images is None:
        pieces = [layouts.text.prompt_ids(given)]
    elif layouts.image_to_text is None:
        raise ConfigError(
            f"{place} has images, and the network cannot see them: it has neither a vision tower"
            " nor image codes and their tokenizer."
        )
    else:
        layout = layouts.image_to_text
        pieces = _pieces(given, layout)
        cuts = tuple(accumulate(len(piece) for piece in pieces[:-1]))
        shown = {"images": given.images, "cuts": cuts, "rows": layout.positions(given)}
    words = torch.tensor([token for piece in pieces for token in piece], dtype=torch.long)
    return Example(words, nothing, nothing, 0, layout.stop_ids[0], **shown)


def _pieces(prompt: Prompt, chat: QuestionLayout) -> list[list[int]]:
    try:
        return chat.pieces(prompt)
    except ValueError as error:  # named by its place already
        raise ConfigError(f"{error}.") from error


def _checked_ids(value: Any, what: str, text: TextLayout) -> list[int]:
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
        return f"longer than {config.where}.max_length or {config.where}.completion_length"
    return ""


def _room(example: Example, config: ExampleConfig) -> int:
    """Longest completion behind the prompt."""
    room, whole = config.max_length - example.given, config.completion_length
    if config.fill == "blocks":
        return room // whole * whole
    return min(room, whole) if whole else room


def _cut(example: Example, room: int) -> Example:
    kept = min(len(example.completion), room)
    return replace(
        example,
        completion=example.completion[:kept],
        order=example.order[:kept],
        trained=min(example.trained, kept),
    )
