"""Pairs of an image and its caption, and edits of images."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config import ConfigError
from mmrl.data.images import LazyImage, find_image, find_image_root
from mmrl.data.stream import RowStream, StoredRows, describe_rows, read_items
from mmrl.objectives.options import PairsConfig


class Pair(NamedTuple):
    """An image, not open, and its caption; of an edit its instruction, and as `source` the image
    before it."""

    image: LazyImage
    text: str
    source: LazyImage | None = None


def open_pairs(config: PairsConfig, seed: int) -> StoredRows[Pair] | RowStream[Pair]:
    """Open pairs of an image and a text. Raises NotHereError, ConfigError: see
    `mmrl.data.rows.read_rows`; also a row that is no pair."""
    read = _reader(config)
    if config.streaming:
        return RowStream(config.source, read, seed, config.shuffle_buffer)
    return StoredRows(read_items(config.source, read), seed)


def describe_pairs(config: PairsConfig) -> str:
    """How many pairs there are, see `describe_rows`."""
    return describe_rows(config.source, _reader(config), config.kind, config.streaming)


def _reader(config: PairsConfig) -> Any:
    return partial(_read, config, find_image_root(config.data, None))


def _read(config: PairsConfig, root: Path | None, place: str, row: Any) -> list[Pair]:
    keys = ("text_column", "image_column", *(["source_column"] if config.source_column else []))
    for key in keys:
        if not isinstance(row, dict) or row.get(getattr(config, key)) is None:
            has = f"it has {sorted(row)}. Name the column with {config.where}.{key}."
            raise ConfigError(f"{place} has no '{getattr(config, key)}'; {has}")
    text, *values = (row[getattr(config, key)] for key in keys)
    if not isinstance(text, str):
        raise ConfigError(f"{place}: '{config.text_column}' is no text but {text!r}.")
    image, *source = [find_image(v, root, place, "the folder of the data") for v in values]
    return [Pair(image, text, *source)]
