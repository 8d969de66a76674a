"""A data set of completions as corrupted rows: the examples of a micro-batch, and their masks."""

from typing import Any

from mmrl.config import build_options
from mmrl.data.row_stream import RowStream
from mmrl.data.stream import stream_positions, stream_rows
from mmrl.objectives.corruptions import CORRUPTIONS
from mmrl.objectives.corruptions.corruption import draw_chance
from mmrl.objectives.packed_rows import Rows, pack_rows
from mmrl.objectives.source_config import SourceConfig
from mmrl.objectives.text_examples import Example, pad_completions
from mmrl.objectives.text_pieces import build_piece, build_prompt
from mmrl.objectives.text_rows import AnswerLayouts, ExampleReader, load_examples
from mmrl.randomness import generator

UNCHECKED = "which is not on this machine: its columns could not be checked"
"""What a dry run says of data on the hub."""


class Source:
    """The examples of a data set, and rows of them.

    Args:
        config: settings.
        layouts: layouts of the checkpoint.
        seed: of the order of examples and of every mask.
    """

    def __init__(self, config: SourceConfig, layouts: AnswerLayouts, seed: int) -> None:
        self.config, self.layouts, self.seed = config, layouts, seed
        self.options = build_options(CORRUPTIONS, config.corruption, f"{config.where}.corruption")
        self.corruption = CORRUPTIONS[config.corruption["name"]]
        self.reader, self.epoch = ExampleReader(config, layouts, config.data), 0
        self.stream: RowStream[Example] | None = None
        self.examples: list[Example] = []
        if config.streaming:
            place = config.data, config.data_config, config.data_split
            self.stream = RowStream(place, self.reader.read, seed, config.shuffle_buffer)
        else:
            self.examples = load_examples(config, layouts, config.data, config.data_split)

    def batch(self, step: int, rank: int, world_size: int, count: int) -> Rows:
        """Build the rows of the `count` examples of a rank in micro-batch `step`."""
        places = stream_positions(step, rank, world_size, count)
        names = [("corruption", place) for place in places]
        return self.build_rows(self._take(places), names)

    @property
    def examples_per_epoch(self) -> int | None:
        """Examples of the data; None for a stream."""
        return len(self.examples) if self.stream is None else None

    def describe(self) -> str:
        """How many examples there are, as far as that is known; of a stream one row is read.

        Raises:
            NotHereError: a stream of the hub that cannot be reached.
            ConfigError: the row is no example.
        """
        if self.stream is None:
            return f"{len(self.examples)} completions of {self.config.data}"
        self.stream.read_first()
        return f"completions of {self.config.data}, streamed"

    def data_state(self) -> dict[str, Any]:
        """Where the stream is; empty for data that are in memory."""
        return {} if self.stream is None else self.stream.state_dict()

    def load_data_state(self, state: dict[str, Any]) -> None:
        """Continue from `data_state()`."""
        if self.stream is not None and state:
            self.stream.load_state_dict(state)
            self.epoch = self.stream.epoch

    def _take(self, places: range) -> list[Example]:
        if self.stream is None:
            numbers = stream_rows(self.seed, places, len(self.examples))
            return [self.examples[n] for n in numbers]
        examples = self.stream.take(places)
        if self.stream.epoch > self.epoch:
            self.epoch = self.stream.epoch
            self.reader.report()
        return examples

    def build_rows(self, examples: list[Example], names: list[tuple[str, int]]) -> Rows:
        """Corrupt the examples of a micro-batch and put them into rows.

        Args:
            examples: of one micro-batch.
            names: of the generators of their masks.
        """
        ids, album = self.layouts.text.ids, self.layouts.album(examples)
        pieces = []
        padded = pad_completions(examples, self.config)
        for n, (example, name) in enumerate(zip(padded, names, strict=True)):
            order = example.order[: example.trained]
            chance = draw_chance(example.trained, generator(self.seed, *name))
            view = self.corruption.corrupt(order, chance, self.options)
            scale = example.trained * len(examples)
            given = build_prompt(example, album)
            size = self.layouts.text.block_size
            pieces.append(build_piece(example, given, view, n, scale, ids["mask"], size))
        rows = pack_rows(pieces, self.config.max_length if self.config.packing else 0, ids["eos"])
        rows.features = None if album is None else album.features(rows.at)
        return rows
