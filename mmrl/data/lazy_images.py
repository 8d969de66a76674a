"""Images of data sets, opened in mode RGB when they are needed.

Files of cameras and programs are brought to one form: rotated by their EXIF orientation, the first
frame of an animation, and what `as_rgb` does. Colour profiles are not applied. An image that cannot
be read whole is an error that names its row. Which image a row means: `mmrl.data.image_sources`.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import pyarrow
from PIL import ExifTags, Image, ImageOps

from mmrl.config import ConfigError
from mmrl.rewards.parsing.images import as_rgb

logger = logging.getLogger(__name__)

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
        source: a file, or the bytes of one (`pyarrow.Buffer` where they stay in a data set).
        place: the row it belongs to, for messages.
    """

    source: Path | bytes | pyarrow.Buffer
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

    def is_animated(self) -> bool:
        """Whether it has several frames; only the header is read.

        Raises:
            ConfigError: as `open` raises, as far as the header shows it.
        """
        with self._stream() as stream:
            image = _header(stream)
            # a MPO file is one photograph with previews
            return image.format != "MPO" and bool(getattr(image, "is_animated", False))

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

    @property
    def identity(self) -> list[Any]:
        """What distinguishes it from others: path, size and time of a file, or a hash of bytes."""
        if isinstance(self.source, Path):
            state = self.source.stat()
            return [str(self.source), state.st_size, state.st_mtime_ns]
        return [hashlib.sha256(self.source).hexdigest()]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file; equal for copies of it.

        Raises:
            ConfigError: the file cannot be read.
        """
        with self._stream() as stream:
            stream.seek(0)
            return hashlib.sha256(stream.read()).digest()

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        """The file of the image; every error inside names the row."""
        file = isinstance(self.source, Path)
        try:
            with open(self.source, "rb") if file else pyarrow.BufferReader(self.source) as stream:
                size = stream.seek(0, os.SEEK_END)
                if size > MAX_BYTES:
                    limit = f"at most {MAX_BYTES:,} are read. Shrink it."
                    raise ConfigError(f"has {size:,} bytes; {limit}")
                yield stream
        except Exception as error:  # on broken files decoders raise anything
            reason = f"cannot be read ({type(error).__name__}: {error}). Repair or remove it."
            if isinstance(error, Image.DecompressionBombError):
                reason = _TOO_LARGE
            elif isinstance(error, ConfigError):
                reason = str(error)
            raise ConfigError(f"{self.place}: the image {reason}") from error


class LazyImages(Sequence[Image.Image]):
    """The images of a prompt, each opened again at every access.

    Args:
        sources: the images, not open.
    """

    def __init__(self, sources: Sequence[LazyImage]) -> None:
        self.sources = tuple(sources)

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, n: int) -> Image.Image: ...

    @overload
    def __getitem__(self, n: slice) -> LazyImages: ...

    def __getitem__(self, n: int | slice) -> Image.Image | LazyImages:
        return LazyImages(self.sources[n]) if isinstance(n, slice) else self.sources[n].open()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each, see `LazyImage.size`; none is opened."""
        return [image.size for image in self.sources]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyImages) and self.sources == other.sources

    def __repr__(self) -> str:
        return f"LazyImages({len(self)})"


def check_images(prompts: Iterable[LazyImages], source: str) -> None:
    """Read the headers of images; a warning counts the animated ones.

    Args:
        prompts: the images of each prompt of one file.
        source: the file, for the warning.

    Raises:
        ConfigError: see `LazyImage.is_animated`.
    """
    files: set[Path] = set()
    animated: list[LazyImage] = []
    for image in (image for each in prompts for image in each.sources):
        if isinstance(image.source, Path):
            if image.source in files:
                continue
            files.add(image.source)
        if image.is_animated():
            animated.append(image)
    if animated:
        logger.warning(
            "%s: %d images have several frames; only the first is used. One is that of %s",
            source,
            len(animated),
            animated[0].place,
        )


def _header(stream: Any) -> Image.Image:
    stream.seek(0)
    image = Image.open(stream, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"has {width} x {height} pixels and {_TOO_LARGE}")
    return image


_TOO_LARGE = f"is larger than the {MAX_PIXELS:,} pixels that are opened. Shrink it."
