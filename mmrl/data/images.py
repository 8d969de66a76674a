"""Images of data sets: which image a value of a row means, and opening it in mode RGB when needed.

Nothing is downloaded, and no path leads out of the root folder. Files of cameras and programs are
brought to one form: rotated by their EXIF orientation, the first frame of an animation, and what
`as_rgb` does. Colour profiles are not applied. An image that cannot be read whole is an error that
names its row.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image, ImageOps, ImageSequence

from mmrl.config import ConfigError, check
from mmrl.data.rows import StoredBytes
from mmrl.rewards.parsing.images import as_rgb

IMAGE_KEYS = ("images", "image")
"""Columns that may hold the images of a row."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""Formats that are decoded. Pillow tries no other decoder; that of EPS would run a program."""
MAX_BYTES = 2**26
"""Largest file: 64 MiB."""
MAX_PIXELS = 2**26
"""Most pixels: 67 million, 192 MiB as RGB. A few bytes can declare any number."""
_TOO_LARGE = f"is larger than the {MAX_PIXELS:,} pixels that are opened. Shrink it."
_DATA_URL = re.compile(r"data:(?:image(?:/[\w.+-]+)?)?(?:;[\w-]+=[\w-]+)*;base64,", re.ASCII)


@dataclass(frozen=True)
class LazyImage:
    """An image that is not open yet: a file, or the bytes of one, which may stay in a data set;
    `place` is the row it belongs to, for messages."""

    source: Path | bytes | StoredBytes
    place: str = field(default="", compare=False)

    def open(self) -> Image.Image:
        """Open the image in mode RGB, upright. Raises ConfigError: it is damaged, truncated, too
        large, of another format than `FORMATS`, or has samples without a defined white (32 bits,
        floats)."""
        with self._stream() as stream:
            image = _header(stream)
            if image.format == "PNG":  # has checksums, which `load` skips
                image.verify()
                image = _header(stream)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return as_rgb(image)

    def open_frames(self, number: int) -> list[Image.Image]:
        """The first frames of an animation, at most so many, each in mode RGB."""
        if number == 1:
            return [self.open()]
        with self._stream() as stream:
            frames = islice(ImageSequence.Iterator(_header(stream)), number)
            return [as_rgb(frame.copy()) for frame in frames]

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright image, from the header; raises what `open` raises, as far
        as the header shows it. The orientation of a PNG is not read where it follows the pixels."""
        with self._stream() as stream:
            image = _header(stream)
            # Pillow has turned a TIFF already, and would decode a PNG without EXIF to look for it
            oriented = image.format not in ("PNG", "TIFF") or "exif" in image.info
            sideways = oriented and image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
            width, height = image.size
            return (height, width) if sideways else (width, height)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the file; equal for copies of it. Raises ConfigError: it cannot be read."""
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


@dataclass(frozen=True)
class LazyImages(Sequence[Image.Image]):
    """The images of a prompt, each opened again at every access."""

    sources: Sequence[LazyImage]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, n: Any) -> Any:
        return LazyImages(self.sources[n]) if isinstance(n, slice) else self.sources[n].open()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of each, see `LazyImage.size`; none is opened."""
        return [image.size for image in self.sources]


def _header(stream: Any) -> Image.Image:
    stream.seek(0)
    image = Image.open(stream, formats=FORMATS)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"has {width} x {height} pixels and {_TOO_LARGE}")
    return image


def find_image_root(source: str, folder: str | None, key: str = "data.image_root") -> Path | None:
    """The folder of the images of rows: that of the setting `key`, or else that of the rows; None
    for a data set of the hub. Raises ConfigError: the setting is no folder."""
    if folder is not None:
        root = Path(folder).expanduser()
        check(root.is_dir(), key, folder, "a folder, or null")
        return root
    here = Path(source)
    return here if here.is_dir() else here.parent if here.is_file() else None


def read_image_values(row: Mapping[str, Any], place: str) -> list[Any]:
    """Read the values of the image columns of a row. Raises ConfigError: both columns are there."""
    columns = [row[key] for key in IMAGE_KEYS if row.get(key) is not None]
    if len(columns) > 1:
        raise ConfigError(f"{place} has both of {', '.join(IMAGE_KEYS)}; keep one.")
    return [value for each in columns for value in (each if isinstance(each, list) else [each])]


def find_image(
    value: Any, root: Path | None, place: str, key: str = "data.image_root"
) -> LazyImage:
    """Find the image that a value of a row means; nothing is decoded.

    Args:
        value: a path below `root`, a data URL, bytes, or `{"bytes": …, "path": …}` as the Image
            feature of Hugging Face datasets stores them.
        root: folder that no path may leave, by `..`, as an absolute path or through a link; None
            where there is none.
        place, key: the row, and the setting of the root, for messages.

    Raises:
        ConfigError: the value is no image, or its file is not below the root.
    """
    if isinstance(value, Mapping) and value.keys() <= {"bytes", "path"} and any(value.values()):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes | StoredBytes):
        return LazyImage(value, place)
    shown, reason = repr(value)[:80], 'that is a path, a data URL, bytes, or {"bytes": …}'
    if isinstance(value, str) and not value.startswith("data:"):
        return LazyImage(_find_file(value, shown, root, place, key), place)
    if isinstance(value, str):
        reason = "as a data URL it begins like data:image/png;base64,"
        try:
            if head := _DATA_URL.match(value):
                return LazyImage(base64.b64decode(value[head.end() :], validate=True), place)
        except ValueError as error:  # also for characters outside ASCII
            reason = f"{error}"
    raise ConfigError(f"{place}: {shown} is no image; {reason}.")


def _find_file(name: str, shown: str, root: Path | None, place: str, key: str) -> Path:
    if re.match(r"\w+://", name):
        said = f"images are not downloaded, and {shown} is an address"
        raise ConfigError(f"{place}: {said}; give the path of a file below {key}.")
    if root is None:
        raise ConfigError(f"{place} names the file {shown}; set {key} to its folder.")
    try:
        path = (root / name).resolve()
        inside, found = path.is_relative_to(root.resolve()), path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, circular links
        raise ConfigError(f"{place}: {shown} is no path of an image: {error}.") from error
    if not inside:
        raise ConfigError(f"{place}: {shown} leads out of {root}; images lie below {key}.")
    if not found:
        raise ConfigError(f"{place}: there is no file {shown} below {root}; set {key}.")
    return path
