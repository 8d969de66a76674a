"""Pairs of an image and its caption at positions of a shuffled stream, stored or read in turn."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mmrl.config import ConfigError
from mmrl.data.image_sources import find_image, find_image_root
from mmrl.data.lazy_images import LazyImage
from mmrl.data.row_stream import RowStream
from mmrl.data.stream import stream_rows
from mmrl.objectives.columns import load_images, load_texts
from mmrl.objectives.masked_config import MaskedConfig


class Pair(NamedTuple):
    """An image, not open, and its caption."""

    image: LazyImage
    text: str


class Pairs(Protocol):
    """Pairs at positions of a shuffled stream."""

    def take(self, positions: range) -> list[Pair]:
        """The pairs at ascending positions."""
        ...


class StoredPairs:
    """Pairs of parquet files, any of which can be read at any time."""

    def __init__(self, config: MaskedConfig, seed: int) -> None:
        self.images = load_images(config.data, config.image_column, config.image_size)
        self.texts, self.seed = load_texts(config.data, config.text_column), seed

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, positions: range) -> list[Pair]:
        """The pairs at positions of the stream."""
        rows = stream_rows(self.seed, positions, len(self))
        texts = [self.texts[row] for row in rows]
        return [Pair(*pair) for pair in zip(self.images.images(rows), texts, strict=True)]


def open_pairs(config: MaskedConfig, seed: int) -> StoredPairs | RowStream[Pair]:
    """Open the pairs of `objective.data`.

    Raises:
        NotHereError, ConfigError: see `load_images` and `mmrl.data.rows.open_rows`.
    """
    if not config.streaming:
        return StoredPairs(config, seed)
    root = find_image_root(config.data, None)

    def read(place: str, row: Any) -> Sequence[Pair]:
        text, image = (_read(row, key, config, place) for key in ("text_column", "image_column"))
        if not isinstance(text, str):
            raise ConfigError(f"{place}: '{config.text_column}' is no text but {text!r}.")
        return [Pair(find_image(image, root, place, "the folder of the data"), text)]

    source = config.data, config.data_config, config.data_split
    return RowStream(source, read, seed, config.shuffle_buffer)


def _read(row: Mapping[str, Any], key: str, config: MaskedConfig, place: str) -> Any:
    column = getattr(config, key)
    if not isinstance(row, Mapping) or row.get(column) is None:
        raise ConfigError(
            f"{place} has no '{column}'; it has {sorted(row)}. Name the column with"
            f" objective.{key}."
        )
    return row[column]
