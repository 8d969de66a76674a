"""Images of data sets, opened in mode RGB when they are needed.

Files of cameras and programs are brought to one form: rotated by their EXIF orientation, the first
frame of an animation, and what `as_rgb` does. Colour profiles are not applied. An image that cannot
be read whole is an error that names its row. Which image a row means: `mmrl.data.image_sources`.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image, ImageOps

from mmrl.config import ConfigError
from mmrl.data.stored_rows import StoredBytes
from mmrl.rewards.parsing.images import as_rgb

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""Formats that are decoded. Pillow tries no other decoder; that of EPS would run a program."""
MAX_BYTES = 2**26
"""Largest file: 64 MiB."""
MAX_PIXELS = 2**26
"""Most pixels: 67 million, 192 MiB as RGB. A few bytes can declare any number."""


@dataclass(frozen=True)
class LazyImage:
    """An image that is not open yet.

    Attributes:
        source: a file, or the bytes of one, which may stay in a data set.
        place: the row it belongs to, for messages.
    """

    source: Path | bytes | StoredBytes
    place: str = field(default="", compare=False)

    def open(self) -> Image.Image:
        """Open the image in mode RGB, upright.

        Raises:
            ConfigError: it is damaged, truncated, too large, of another format than `FORMATS`, or
                has samples without a defined white (32 bits, floats).
        """
        with self._stream() as stream:
            image = _header(stream)
            if image.format == "PNG":  # has checksums, which `load` skips
                image.verify()
                image = _header(stream)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return as_rgb(image)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright image, from the header.

        The orientation of a PNG is not read where it follows the pixels.

        Raises:
            ConfigError: as `open` raises, as far as the header shows it.
        """
        with self._stream() as stream:
            image = _header(stream)
            # Pillow has turned a TIFF already, and would decode a PNG without EXIF to look for it
            oriented = image.format not in ("PNG", "TIFF") or "exif" in image.info
            sideways = oriented and image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
            width, height = image.size
            return (height, width) if sideways else (width, height)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file; equal for copies of it.

        Raises:
            ConfigError: the file cannot be read.
        """
        with self._stream() as stream:
            return hashlib.sha256(stream.read()).digest()

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        """The file of the image; every error inside names the row."""
        try:
            with self._open_file() as stream:
                size = stream.seek(0, os.SEEK_END)
                if size > MAX_BYTES:
                    limit = f"at most {MAX_BYTES:,} are read. Shrink it."
                    raise ConfigError(f"has {size:,} bytes; {limit}")
                stream.seek(0)
                yield stream
        except Exception as error:  # on broken files decoders raise anything
            reason = f"cannot be read ({type(error).__name__}: {error}). Repair or remove it."
            if isinstance(error, Image.DecompressionBombError):
                reason = _TOO_LARGE
            elif isinstance(error, ConfigError):
                reason = str(error)
            raise ConfigError(f"{self.place}: the image {reason}") from error

    def _open_file(self) -> Any:
        if isinstance(self.source, Path):
            return self.source.open("rb")
        return io.BytesIO(self.source if isinstance(self.source, bytes) else self.source.read())


class LazyImages(Sequence[Image.Image]):
    """The images of a prompt, each opened again at every access.

    Args:
        sources: the images, not open.
    """

    def __init__(self, sources: Sequence[LazyImage]) -> None:
        self.sources = tuple(sources)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, n: Any) -> Any:
        return LazyImages(self.sources[n]) if isinstance(n, slice) else self.sources[n].open()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each, see `LazyImage.size`; none is opened."""
        return [image.size for image in self.sources]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyImages) and self.sources == other.sources


def _header(stream: Any) -> Image.Image:
    stream.seek(0)
    image = Image.open(stream, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"has {width} x {height} pixels and {_TOO_LARGE}")
    return image


_TOO_LARGE = f"is larger than the {MAX_PIXELS:,} pixels that are opened. Shrink it."
