"""Pairs of an image and its caption, and edits of images, at positions of a shuffled stream, stored
or read in turn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mmrl.config import ConfigError, NotHereError, check
from mmrl.data.image_sources import find_image, find_image_root
from mmrl.data.lazy_images import LazyImage
from mmrl.data.row_stream import RowStream
from mmrl.data.rows import read_rows
from mmrl.data.stream import stream_rows
from mmrl.objectives.data_config import PairsConfig
from mmrl.objectives.objective import UNCHECKED


class Pair(NamedTuple):
    """An image, not open, and its caption; of an edit its instruction, and the image before it."""

    image: LazyImage
    text: str
    source: LazyImage | None = None


class StoredPairs:
    """Pairs of a file of rows, any of which can be read at any time."""

    def __init__(self, pairs: Sequence[Pair], seed: int) -> None:
        self.pairs, self.seed = pairs, seed

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, positions: range) -> list[Pair]:
        """The pairs at positions of the stream."""
        return [self.pairs[row] for row in stream_rows(self.seed, positions, len(self))]


def open_pairs(
    config: PairsConfig, seed: int, source_column: str | None = None
) -> StoredPairs | RowStream[Pair]:
    """Open pairs of an image and a text.

    Args:
        config: where they are.
        seed: of the shuffles.
        source_column: of the image before an edit; None where the images are no edits.

    Raises:
        NotHereError, ConfigError: see `mmrl.data.rows.read_rows`; also a row that is no pair.
    """
    root = find_image_root(config.data, None)
    columns = {"text_column": config.text_column, "image_column": config.image_column}
    if source_column is not None:
        columns["source_column"] = source_column

    def read(place: str, row: Any) -> list[Pair]:
        for key, column in columns.items():
            if not isinstance(row, dict) or row.get(column) is None:
                raise ConfigError(
                    f"{place} has no '{column}'; it has {sorted(row)}. Name the column with"
                    f" {config.where}.{key}."
                )
        text, *values = (row[column] for column in columns.values())
        if not isinstance(text, str):
            raise ConfigError(f"{place}: '{config.text_column}' is no text but {text!r}.")
        image, *source = [find_image(v, root, place, "the folder of the data") for v in values]
        return [Pair(image, text, *source)]

    if config.streaming:
        return RowStream(config.source, read, seed, config.shuffle_buffer)
    pairs = [pair for place, row in read_rows(*config.source) for pair in read(place, row)]
    check(bool(pairs), f"{config.where}.data", config.data, "a file with a row")
    return StoredPairs(pairs, seed)


def describe_pairs(config: PairsConfig, kind: str, source_column: str | None = None) -> str:
    """How many pairs there are, as far as that is known; of a stream one row is read.

    Raises:
        ConfigError: see `open_pairs`.
    """
    try:
        pairs = open_pairs(config, 0, source_column)
        if isinstance(pairs, StoredPairs):
            return f"{len(pairs)} {kind} of {config.data}"
        pairs.read_first()
    except NotHereError:
        return f"{kind} of {config.data}, {UNCHECKED}"
    return f"{kind} of {config.data}, streamed"
