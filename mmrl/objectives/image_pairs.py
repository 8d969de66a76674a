"""Pairs of an image and its caption, and edits of images, at positions of a shuffled stream, stored
or read in turn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mmrl.config import ConfigError, check
from mmrl.data.image_sources import find_image, find_image_root
from mmrl.data.lazy_images import LazyImage
from mmrl.data.row_stream import RowStream
from mmrl.data.rows import read_rows
from mmrl.data.stream import stream_rows
from mmrl.objectives.pairs_config import PairsConfig


class Pair(NamedTuple):
    """An image, not open, and its caption; of an edit its instruction, and the image before it."""

    image: LazyImage
    text: str
    source: LazyImage | None = None


class Pairs(Protocol):
    """Pairs at positions of a shuffled stream."""

    def take(self, positions: range) -> list[Pair]:
        """The pairs at ascending positions."""
        ...


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

    def read(place: str, row: Any) -> Sequence[Pair]:
        text = _read(row, "text_column", config, place)
        if not isinstance(text, str):
            raise ConfigError(f"{place}: '{config.text_column}' is no text but {text!r}.")
        keys = ("image_column",) if source_column is None else ("image_column", "source_column")
        values = [_read(row, key, config, place) for key in keys]
        image, *source = [find_image(v, root, place, "the folder of the data") for v in values]
        return [Pair(image, text, *source)]

    source = shards_of(config.data), config.data_config, config.data_split
    if config.streaming:
        return RowStream(source, read, seed, config.shuffle_buffer)
    pairs = [pair for place, row in read_rows(*source) for pair in read(place, row)]
    check(bool(pairs), f"{config.where}.data", config.data, "a file with a row")
    return StoredPairs(pairs, seed)


def shards_of(path: str) -> str:
    """A folder of parquet files as the pattern of its files; other sources as they are."""
    return f"{path}/*.parquet" if any(Path(path).glob("*.parquet")) else path


def _read(row: Mapping[str, Any], key: str, config: PairsConfig, place: str) -> Any:
    column = getattr(config, key)
    if not isinstance(row, Mapping) or row.get(column) is None:
        raise ConfigError(
            f"{place} has no '{column}'; it has {sorted(row)}. Name the column with"
            f" {config.where}.{key}."
        )
    return row[column]
