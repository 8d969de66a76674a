"""Columns of parquet files: images as pixel tensors, opened when they are needed, and texts.

Images are opened like those of prompts, by `mmrl.data.lazy_images`; the error of one that cannot be
read names its row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.data.arrow_bytes import holds_bytes
from mmrl.data.image_sources import find_image
from mmrl.data.lazy_images import LazyImage
from mmrl.models.layouts.pixels import image_to_pixels

if TYPE_CHECKING:
    from datasets import Dataset


class ImageRows:
    """Random access to the images of a data set, as they are or as pixels in [-1, 1].

    Args:
        rows: the data set, which does not decode the images.
        column: bytes of images, or `{"bytes": …, "path": …}`.
        size: side of the square in pixels; 0 where `pixels` is not called.
        path: of the data set, for messages; paths of images are relative to its folder.
    """

    def __init__(self, rows: Dataset, column: str, size: int, path: str) -> None:
        self.rows, self.column, self.size, self.path = rows, column, size, path
        self.root = Path(path) if Path(path).is_dir() else Path(path).parent

    def __len__(self) -> int:
        return len(self.rows)

    def images(self, indices: list[int]) -> list[LazyImage]:
        """Return the images of some rows, not open."""
        values = self.rows[indices][self.column]
        return [
            find_image(value, self.root, f"{self.path}, row {n}", "the folder of the file")
            for n, value in zip(indices, values, strict=True)
        ]

    def pixels(self, indices: list[int]) -> Tensor:
        """Return images [len(indices), 3, size, size] float32 in [-1, 1].

        Raises:
            ConfigError: an image that cannot be read, see `LazyImage.open`; it names the row.
        """
        opened = (image.open() for image in self.images(indices))
        return torch.stack([image_to_pixels(image, self.size) for image in opened])


def load_images(path: str, column: str, size: int = 0) -> ImageRows:
    """Open the images of a parquet file or of a folder of parquet files.

    Raises:
        ConfigError: there is no such file, no such column, or it does not hold images.
    """
    from datasets import Image as ImageFeature

    rows = load_column(path, column)
    if not holds_bytes(rows.features.arrow_schema.field(column).type):
        raise ConfigError(
            f"Column '{column}' of '{path}' does not hold images; it must hold their bytes, plain"
            ' or as {"bytes": …, "path": …}.'
        )
    if isinstance(rows.features[column], ImageFeature):
        rows = rows.cast_column(column, ImageFeature(decode=False))
    return ImageRows(rows, column, size, path)


def load_texts(path: str, column: str) -> list[str]:
    """Read one column of text, in the order of the images of the same path.

    Raises:
        ConfigError: there is no such file, no such column, or it does not hold text.
    """
    texts = list(load_column(path, column)[column])
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"Column '{column}' of '{path}' does not hold text in every row.")
    return texts


def load_column(path: str, column: str) -> Dataset:
    """Open a column of a parquet file, or of a folder of them in the order of their names.

    Raises:
        ConfigError: there is no such file or no such column.
    """
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files or not files[0].is_file():
        raise ConfigError(f"'{path}' is neither a parquet file nor a folder of parquet files.")
    from datasets import Dataset

    rows = Dataset.from_parquet([str(file) for file in files])
    if column not in rows.column_names:
        raise ConfigError(f"'{path}' has no column '{column}'; it has {rows.column_names}.")
    return rows.select_columns([column])
