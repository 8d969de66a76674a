"""Rows of a data set as examples: token ids of prompts and completions, recorded orders, lengths.

The checkpoint's layouts render the prompts, so a completion begins exactly where a sampled one
would. Images are not opened; the sizes in their headers give the positions that they take.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from mmrl.config import ConfigError
from mmrl.data.image_sources import find_image_root
from mmrl.data.lazy_images import LazyImages, check_images
from mmrl.data.rows import read_rows
from mmrl.models.families import FAMILIES
from mmrl.models.layouts.image_codes_chat import CodesAlbum, ImageCodesChat
from mmrl.models.layouts.question_layout import Album, QuestionLayout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.policy import Policy
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.image_codes import ImageCodes
from mmrl.objectives.image_codes_config import ImageCodesConfig
from mmrl.objectives.source_config import SourceConfig
from mmrl.objectives.text_examples import Example
from mmrl.objectives.text_pairs import Pair, read_pairs
from mmrl.rewards.parsing.metadata import write_value
from mmrl.types import Prompt

logger = logging.getLogger(__name__)


class AnswerLayouts:
    """Layouts of a policy for completions of text and for answers about images.

    Args:
        policy: its weights are not needed.
        config: how images become codes, for a network that reads those.
    """

    def __init__(self, policy: Policy, config: ImageCodesConfig) -> None:
        text, questions = policy.layouts["text"], policy.layouts.get("image_to_text")
        assert isinstance(text, TextLayout)
        assert questions is None or isinstance(questions, QuestionLayout)
        self.text, self.image_to_text, self.config = text, questions, config

    @cached_property
    def codes(self) -> ImageCodes | None:
        """Codes of the images seen so far; None for a network that reads none."""
        layout = self.image_to_text
        if not isinstance(layout, ImageCodesChat):
            return None
        size = layout.grid[0] * layout.vq.downsample
        return ImageCodes(layout.vq, size, layout.image_fit, self.config)

    def album(self, examples: Sequence[Example]) -> Album | None:
        """The album for the images of a micro-batch, which images that become codes are in already;
        None for a network that reads no images."""
        layout = self.image_to_text
        album = None if layout is None else layout.album()
        shown = [e.images for e in examples if isinstance(e.images, LazyImages)]
        if shown and isinstance(album, CodesAlbum) and self.codes is not None:
            codes = self.codes.encode([image for each in shown for image in each.sources])
            places = [(each, n) for each in shown for n in range(len(each))]
            for (images, number), row in zip(places, codes, strict=True):
                album.put(images, number, row)
        return album


class ExampleReader:
    """Makes examples of the rows of a data set.

    Args:
        config: columns, ends and lengths.
        layouts: layouts of the checkpoint.
        source: file, folder or hub id.

    Attributes:
        left_out: how many were left out, by the reason.
    """

    def __init__(self, config: SourceConfig, layouts: AnswerLayouts, source: str) -> None:
        self.config, self.layouts, self.source = config, layouts, source
        self.root = find_image_root(source, config.image_root, f"{config.where}.image_root")
        self.left_out = Counter[str]()

    def read(self, place: str, row: Any) -> list[Example]:
        """The examples of a row that can be learned.

        Raises:
            ConfigError: a row that is no example; the message names its place.
        """
        row, pairs = read_pairs(row, place, self.config, self.root)
        examples = []
        for pair in pairs:
            example = _build_example(pair, row, place, self.config, self.layouts)
            reason = _find_fault(example, self.config)
            if reason:
                self.left_out[reason] += 1
            else:
                examples.append(_truncate(example, self.config))
        return examples

    def report(self) -> None:
        """Log how many were left out since the last report, and why."""
        for reason, count in sorted(self.left_out.items()):
            logger.warning("%s: %d examples left out, %s", self.source, count, reason)
        self.left_out.clear()


def load_examples(
    config: SourceConfig, layouts: AnswerLayouts, source: str, split: str | None
) -> list[Example]:
    """Read the examples of a data set, in its order; log how many are left out and why.

    Args:
        config: columns, ends and lengths.
        layouts: layouts of the checkpoint.
        source: file or hub id.
        split: of a hub data set.

    Raises:
        ConfigError: a row that is no example, with its place; or nothing is left.
    """
    reader = ExampleReader(config, layouts, source)
    rows = read_rows(source, config.data_config, split)
    examples = [example for place, row in rows for example in reader.read(place, row)]
    reasons = ", ".join(sorted(reader.left_out)) or "it has no rows"
    reader.report()
    if not examples:
        raise ConfigError(f"'{source}' holds nothing to learn: {reasons}.")
    check_images([e.images for e in examples if isinstance(e.images, LazyImages)], source)
    return examples


def _build_example(
    pair: Pair, row: Mapping[str, Any], place: str, config: SourceConfig, layouts: AnswerLayouts
) -> Example:
    example, text, ends = _read_prompt(pair.given, place, layouts), pair.completion, []
    if isinstance(text, int | float) and not isinstance(text, bool):
        try:
            text = write_value(text, f"'{config.completion_column}'")
        except ValueError as error:
            raise ConfigError(f"{place}: {error}.") from error
    if isinstance(text, str):
        text = layouts.text.tokenizer(text, add_special_tokens=False)["input_ids"]
        banned = layouts.image_to_text.banned if example.images and layouts.image_to_text else ()
        ends = [layouts.text.ids[end] for end in config.ends if layouts.text.ids[end] not in banned]
    ids = _check_ids(text, f"{place}: '{config.completion_column}'", layouts.text)
    order = list(range(len(ids)))
    if CORRUPTIONS[config.corruption["name"]].recorded:
        order = _check_order(row.get(config.order_column), len(ids), place, config.order_column)
    last = max(order, default=-1)
    order = [*order, *(last + n + 1 for n in range(len(ends)))]
    return replace(
        example,
        completion=torch.tensor([*ids, *ends], dtype=torch.long),
        order=torch.tensor(order, dtype=torch.long),
        trained=len(ids) + len(ends) if ids else 0,
    )


def _read_prompt(given: Prompt | list[int], place: str, layouts: AnswerLayouts) -> Example:
    """An example without its completion."""
    nothing, images = torch.zeros(0, dtype=torch.long), {}
    layout: TextLayout | QuestionLayout = layouts.text
    if not isinstance(given, Prompt):
        pieces = [_check_ids(given, f"{place}: the prompt", layouts.text)]
    elif given.images is None:
        pieces = [layouts.text.prompt_ids(given)]
    elif layouts.image_to_text is None:
        able = (name for name, family in FAMILIES.items() if "image_to_text" in family.LAYOUTS)
        raise ConfigError(
            f"{place} has images, and the network cannot see them: it has neither a vision tower"
            " nor image codes and their tokenizer. Leave them out, name a checkpoint of type"
            f" {' or '.join(sorted(able))}, or the image tokenizer of one that reads codes"
            " (objective.vq)."
        )
    else:
        layout = layouts.image_to_text
        try:
            pieces = layout.pieces(given)
        except ValueError as error:  # it names the place
            raise ConfigError(f"{error}.") from error
        cuts = tuple(accumulate(len(piece) for piece in pieces[:-1]))
        images = {"images": given.images, "cuts": cuts, "rows": layout.positions(given)}
    tokens = torch.tensor([token for piece in pieces for token in piece], dtype=torch.long)
    return Example(tokens, nothing, nothing, 0, layout.stop_ids[0], **images)


def _check_ids(value: Any, what: str, text: TextLayout) -> list[int]:
    first, end = text.vocab
    if not isinstance(value, list) or not all(
        isinstance(i, int) and first <= i < end for i in value
    ):
        raise ConfigError(f"{what} is neither text nor a list of token ids below {end}.")
    if text.ids["mask"] in value:
        raise ConfigError(f"{what} holds the mask token, which means an unknown token.")
    return value


def _check_order(order: Any, length: int, place: str, column: str) -> list[int]:
    listed = isinstance(order, list) and all(isinstance(n, int) and n >= 0 for n in order)
    if not listed or len(order) != length:
        raise ConfigError(
            f"{place}: '{column}' must hold one step, 0 or more, for each of the {length} tokens of"
            " the completion. Record token ids with it if the text tokenises in another way."
        )
    return order


def _find_fault(example: Example, config: SourceConfig) -> str:
    """Why an example is left out; empty if it is not."""
    if not example.trained:
        return "the completion is empty"
    room = _find_room(example, config)
    if room < (1 if config.overlong == "cut" else len(example.completion)):
        return f"longer than {config.where}.max_length or {config.where}.completion_length"
    return ""


def _find_room(example: Example, config: SourceConfig) -> int:
    """Longest completion after the prompt."""
    room, whole = config.max_length - example.given, config.completion_length
    if config.fill == "blocks":
        return room // whole * whole
    return min(room, whole) if whole else room


def _truncate(example: Example, config: SourceConfig) -> Example:
    kept = min(len(example.completion), _find_room(example, config))
    return replace(
        example,
        completion=example.completion[:kept],
        order=example.order[:kept],
        trained=min(example.trained, kept),
    )
