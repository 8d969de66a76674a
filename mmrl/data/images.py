"""Pictures that others made, opened as RGB images when they are needed.

What a camera or a program wrote is brought to one form: turned as its EXIF says, 16 bits scaled to
8 (Pillow's own conversion clips them), CMYK and palettes converted, transparent parts white, the
first frame of an animation. Colour profiles are not applied. Whatever cannot be read whole is
refused with the row it belongs to. Which picture a row means: `mmrl.data.image_sources`.
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

import numpy as np
import pyarrow
from PIL import ExifTags, Image, ImageOps

from mmrl.config import ConfigError
from rewards.parsing.images import as_rgb

logger = logging.getLogger(__name__)

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""What is decoded. No other decoder of Pillow is reached; the one of EPS would run a program."""
MAX_BYTES = 2**26
"""Largest file: 64 MiB."""
MAX_PIXELS = 2**26
"""Most pixels: 67 million, 192 MiB as RGB. A few bytes can claim any number."""

_TIFF_BITS, _TIFF_PHOTOMETRIC = 258, 262


@dataclass(frozen=True)
class Picture:
    """A picture that is not open yet.

    Attributes:
        source: a file, or the bytes of one (`pyarrow.Buffer` where they stay in a data set).
        place: the row it belongs to, for messages.
    """

    source: Path | bytes | pyarrow.Buffer
    place: str = field(default="", compare=False)

    def open(self) -> Image.Image:
        """The picture in mode RGB, upright.

        Raises:
            ConfigError: it is damaged, cut off, too large, of another format than `FORMATS`, or
                has samples without a defined white (32 bits, floats).
        """
        with self._refusals(), self._stream() as stream:
            image = _header(stream)
            if image.format == "PNG":  # the one format with checksums, which loading skips
                image.verify()
                image = _header(stream)
            image.load()
            return as_rgb(_eight_bits(ImageOps.exif_transpose(image), image))

    def is_animated(self) -> bool:
        """Whether it has several frames; only the header is read.

        Raises:
            ConfigError: what the header shows of the reasons in `open`.
        """
        with self._refusals(), self._stream() as stream:
            image = _header(stream)
            # a MPO file is one photograph with previews
            return image.format != "MPO" and bool(getattr(image, "is_animated", False))

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture, from the header.

        A PNG that says only behind its pixels that it lies on its side is taken as it lies.

        Raises:
            ConfigError: what the header shows of the reasons in `open`.
        """
        with self._refusals(), self._stream() as stream:
            image = _header(stream)
            # sizes of TIFF are upright already, and a PNG without EXIF would be decoded to find it
            told = image.format not in ("PNG", "TIFF") or "exif" in image.info
            sideways = told and image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
            width, height = image.size
            return (height, width) if sideways else (width, height)

    @property
    def identity(self) -> list[Any]:
        """What tells it from other pictures: path, size and time of a file, or a hash of bytes."""
        if isinstance(self.source, Path):
            state = self.source.stat()
            return [str(self.source), state.st_size, state.st_mtime_ns]
        return [hashlib.sha256(self.source).hexdigest()]

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except Image.DecompressionBombError as error:
            raise ConfigError(f"{self.place}: the picture {_TOO_LARGE}") from error
        except ConfigError as error:
            raise ConfigError(f"{self.place}: the picture {error}") from error
        except Exception as error:  # on broken files decoders raise anything
            reason = f"cannot be read ({type(error).__name__}: {error}). Repair or remove it."
            raise ConfigError(f"{self.place}: the picture {reason}") from error

    @contextmanager
    def _stream(self) -> Iterator[Any]:
        file = isinstance(self.source, Path)
        with open(self.source, "rb") if file else pyarrow.BufferReader(self.source) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size > MAX_BYTES:
                raise ConfigError(f"has {size:,} bytes; at most {MAX_BYTES:,} are read. Shrink it.")
            yield stream


class Pictures(Sequence[Image.Image]):
    """The pictures of a prompt, each opened anew whenever it is asked for.

    Args:
        sources: the pictures, not open.
    """

    def __init__(self, sources: Sequence[Picture]) -> None:
        self.sources = tuple(sources)

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, n: int) -> Image.Image: ...

    @overload
    def __getitem__(self, n: slice) -> Pictures: ...

    def __getitem__(self, n: int | slice) -> Image.Image | Pictures:
        return Pictures(self.sources[n]) if isinstance(n, slice) else self.sources[n].open()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each; none is opened, see `Picture.size`."""
        return [picture.size for picture in self.sources]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pictures) and self.sources == other.sources

    def __repr__(self) -> str:
        return f"Pictures({len(self)})"


def check_pictures(pictures: Iterable[Pictures], source: str) -> None:
    """Read the headers of pictures; those that move are counted in the log.

    Args:
        pictures: of the prompts of one file.
        source: the file, for the log.

    Raises:
        ConfigError: see `Picture.is_animated`.
    """
    files: set[Path] = set()
    moving: list[Picture] = []
    for picture in (picture for each in pictures for picture in each.sources):
        if isinstance(picture.source, Path):
            if picture.source in files:
                continue
            files.add(picture.source)
        if picture.is_animated():
            moving.append(picture)
    if moving:
        logger.warning(
            "%s: %d pictures have several frames, of which the first is taken, such as that of %s",
            source,
            len(moving),
            moving[0].place,
        )


def _header(stream: Any) -> Image.Image:
    stream.seek(0)
    image = Image.open(stream, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"has {width} x {height} pixels and {_TOO_LARGE}")
    return image


_TOO_LARGE = f"is larger than the {MAX_PIXELS:,} pixels that are opened. Shrink it."


def _eight_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """A picture of 16-bit grey with 8 bits, others as they are; the largest value becomes 255."""
    if image.mode == "F" or (image.mode == "I" and opened.format != "PNG"):
        raise ConfigError("has samples of 32 bits, whose white nobody knows. Save it with 8 or 16.")
    if not image.mode.startswith("I"):
        return image
    values, tags = np.asarray(image).astype(np.uint32), getattr(opened, "tag_v2", {})
    largest = 2 ** tags.get(_TIFF_BITS, (16,))[0] - 1
    scaled = (values * 255 + largest // 2) // largest
    if tags.get(_TIFF_PHOTOMETRIC) == 0:  # 0 is white, which Pillow minds at 8 bits only
        scaled = 255 - scaled
    scaled[values == image.info.get("transparency", -1)] = 255
    return Image.fromarray(scaled.astype(np.uint8))
