"""Columns of images as pixel tensors, opened when they are needed.

Images are opened like those of prompts, by `mmrl.data.lazy_images`; the error of one that cannot be
read names its row.
"""

import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.data.image_sources import find_image, find_image_root
from mmrl.data.lazy_images import LazyImage
from mmrl.data.rows import read_rows
from mmrl.models.layouts.pixels import image_to_pixels


class ImageRows(list[LazyImage]):
    """The images of a data set, not open."""

    size = 0
    """Side of the square in pixels."""

    def pixels(self, indices: list[int]) -> Tensor:
        """Return images [len(indices), 3, size, size] float32 in [-1, 1].

        Raises:
            ConfigError: an image that cannot be read, see `LazyImage.open`; it names the row.
        """
        return torch.stack([image_to_pixels(self[n].open(), self.size) for n in indices])


def load_images(path: str, column: str, size: int) -> ImageRows:
    """Find the images of a file of rows or of a folder of parquet files.

    Raises:
        ConfigError: see `read_rows`; also a row without an image.
    """
    rows, root = ImageRows(), find_image_root(path, None)
    rows.size = size
    for place, row in read_rows(path):
        if row.get(column) is None:
            raise ConfigError(f"{place} has no image in '{column}'; it has {sorted(row)}.")
        rows.append(find_image(row[column], root, place, "the folder of the file"))
    return rows
