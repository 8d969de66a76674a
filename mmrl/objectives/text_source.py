"""A data set of completions as corrupted rows: the examples of a micro-batch, and their masks."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from mmrl.config import build_options
from mmrl.data.images import find_image_root
from mmrl.data.stream import RowStream, StoredRows, describe_rows, stream_positions
from mmrl.models.layouts.question_layout import Album, with_images
from mmrl.objectives.answer_layouts import AnswerLayouts
from mmrl.objectives.corruptions import CORRUPTIONS, View, draw_chance
from mmrl.objectives.options import SourceConfig
from mmrl.objectives.scored_rows import Rows, stack_rows
from mmrl.objectives.text_examples import Example, ExampleReader
from mmrl.objectives.text_pairs import read_pairs
from mmrl.randomness import generator


class Source:
    """The examples of a data set, and rows of them; the seed gives their order and every mask.
    Raises NotHereError, ConfigError: see `mmrl.data.rows.read_rows` and `ExampleReader.read_all`.
    """

    def __init__(self, config: SourceConfig, layouts: AnswerLayouts, seed: int) -> None:
        self.config, self.layouts, self.seed = config, layouts, seed
        self.options = build_options(CORRUPTIONS, config.corruption, f"{config.where}.corruption")
        self.corruption = CORRUPTIONS[config.corruption["name"]]
        self.reader = ExampleReader(config, layouts)
        self.rows: RowStream[Example] | StoredRows[Example]
        if config.streaming:
            self.rows = RowStream(config.source, self.reader.read, seed, config.shuffle_buffer)
        else:
            self.rows = StoredRows(self.reader.read_all(), seed)

    def batch(self, step: int, rank: int, world_size: int, count: int) -> Rows:
        """Build the rows of the `count` examples of a rank in micro-batch `step`."""
        places = stream_positions(step, rank, world_size, count)
        examples = self.rows.take(places)
        self.reader.report()
        return self.build_rows(examples, [("corruption", place) for place in places])

    def build_rows(self, examples: list[Example], names: list[tuple[str, int]]) -> Rows:
        """Corrupt the examples of a micro-batch, with generators of these names, and put them into
        rows."""
        text, album = self.layouts.text, self.layouts.album([e.images for e in examples])
        found = []
        padded = pad_completions(examples, self.config)
        size = self.corruption.prompt_block or text.block_size
        for example, name in zip(padded, names, strict=True):
            order = example.order[: example.trained]
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption.corrupt(order, chance, self.options)
            row = build_row(example, album, view, text.ids.get("mask", 0), size)
            row.weight /= example.trained * len(examples)
            found.append(row)
        rows = stack_rows(found, text.ids["eos"])
        rows.features = None if album is None else album.features(rows.at)
        return rows


def describe_source(config: SourceConfig, layouts: AnswerLayouts | None) -> str:
    """How many completions there are, see `describe_rows`; also logs what is left out. Without
    layouts, where the tokenizer is not here, the columns of the first row are checked."""
    if layouts is None:
        root = find_image_root(config.data, config.image_root, f"{config.where}.image_root")
        read = partial(read_pairs, config=config, root=root)
        return describe_rows(config.source, read, "completions", streaming=True)
    reader = ExampleReader(config, layouts)
    said = describe_rows(config.source, reader.read, "completions", config.streaming)
    reader.report()
    return said


def pad_completions(examples: Sequence[Example], config: SourceConfig) -> list[Example]:
    """Extend the completions of a micro-batch as the setting `fill` says."""
    longest, whole = max(map(len, examples)), config.completion_length
    padded = []
    for example in examples:
        length = {
            "none": len(example),
            "completion": example.given + whole,
            "blocks": example.given + -(-len(example.completion) // max(whole, 1)) * whole,
            "row": config.max_length,
            "batch": longest,
        }[config.fill]
        padded.append(example.pad(max(0, length - len(example)), config.trained_padding))
    return padded


def build_row(
    example: Example, album: Album | None, view: View, mask_id: int, block_size: int | None
) -> Rows:
    """Join the prompt of an example, the view of its `trained` tokens, whose hidden columns become
    `mask_id`, and its untrained rest, with the weights of the view.

    `album` is of the micro-batch, for images, which are opened here; None where there are none.
    `block_size` is of the prompt, where attention is causal between blocks; None lets it attend to
    all of itself. Returns tensors [P + m + n - trained]: P positions of the prompt and its images,
    m columns of the view, n tokens of the completion."""
    (prompt, at), rest = _show_prompt(example, album), len(example.completion) - example.trained
    first = len(prompt)
    index = torch.cat((view.index, torch.arange(example.trained, len(example.completion))))
    targets = torch.cat((prompt, example.completion[index]))
    hidden = _extend(first, False, view.hidden, rest, True)
    # the prompt is block 0 where all attend to all, and an earlier block where there are several
    before = -1 if bool((view.copy | (view.block != 0)).any()) else 0
    block = _extend(first, before, view.block, rest, 0)
    if block_size is not None:  # those of the prompt end where the completion begins
        block[:first] = (torch.arange(first) - first) // block_size
    return Rows(
        ids=torch.where(hidden, mask_id, targets),
        targets=targets,
        weight=_extend(first, 0.0, view.weight, rest, 0.0),
        place=torch.cat((torch.arange(first), first + index)),
        block=block,
        copy=_extend(first, False, view.copy, rest, False),
        real=torch.ones_like(targets, dtype=torch.bool),
        at=torch.cat((at, torch.full_like(index, -1))),
    )


def _show_prompt(example: Example, album: Album | None) -> tuple[Tensor, Tensor]:
    """Token ids with the images in their places, and the embedding that replaces each or -1."""
    if album is None or not example.cuts:
        return example.prompt, torch.full_like(example.prompt, -1)
    images = [album.add(example.images, n) for n in range(len(example.cuts))]
    texts = [part.tolist() for part in example.prompt.tensor_split(example.cuts)]
    row, at = with_images(texts, images)
    return torch.tensor(row), torch.tensor(at)


def _extend(left: int, before: float, middle: Tensor, right: int, after: float) -> Tensor:
    """`middle` with `left` values before it and `right` values after it."""
    return torch.cat((middle.new_full((left,), before), middle, middle.new_full((right,), after)))
