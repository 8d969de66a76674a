"""The image that a value of a row means: a file below a root folder, bytes, or a data URL.

Nothing is downloaded, and no path leads out of the root.
"""

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, check
from mmrl.data.lazy_images import LazyImage
from mmrl.data.stored_rows import StoredBytes

IMAGE_KEYS = ("images", "image")
"""Columns that may hold the images of a row."""

_DATA_URL = re.compile(r"data:(?:image(?:/[\w.+-]+)?)?(?:;[\w-]+=[\w-]+)*;base64,", re.ASCII)


def find_image_root(source: str, folder: str | None, key: str = "data.image_root") -> Path | None:
    """Find the folder of the images of a data set; None for a data set of the hub.

    Args:
        source: file, folder or hub id of the rows.
        folder: value of the setting; None takes the folder of the rows.
        key: name of the setting, for messages.

    Raises:
        ConfigError: the value is not a folder.
    """
    if folder is not None:
        root = Path(folder).expanduser()
        check(root.is_dir(), key, folder, "a folder, or null")
        return root
    here = Path(source)
    return here if here.is_dir() else here.parent if here.is_file() else None


def read_image_values(row: Mapping[str, Any], place: str) -> list[Any]:
    """Read the values of the image columns of a row.

    Raises:
        ConfigError: both columns are there.
    """
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
        place: the row, for messages.
        key: setting of the root, for messages.

    Raises:
        ConfigError: the value is no image, or its file is not below the root.
    """
    if isinstance(value, Mapping) and value.keys() <= {"bytes", "path"} and any(value.values()):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes | StoredBytes):
        return LazyImage(value, place)
    if not isinstance(value, str):
        raise ConfigError(
            f"{place}: {_short(value)} is no image; that is a path, a data URL, bytes, or"
            ' {"bytes": …, "path": …}.'
        )
    if value.startswith("data:"):
        return LazyImage(_decoded(value, place), place)
    return LazyImage(_file(value, root, place, key), place)


def _decoded(url: str, place: str) -> bytes:
    head = _DATA_URL.match(url)
    try:
        if head is not None:
            return base64.b64decode(url[head.end() :], validate=True)
        reason = "it does not begin like data:image/png;base64,"
    except ValueError as error:  # also for characters outside ASCII
        reason = f"{error}"
    raise ConfigError(f"{place}: {_short(url)} is no data URL of an image: {reason}.")


def _file(name: str, root: Path | None, place: str, key: str) -> Path:
    if re.match(r"\w+://", name):
        raise ConfigError(
            f"{place}: images are not downloaded, and {_short(name)} is an address; give the path"
            f" of a file below {key}."
        )
    if root is None:
        raise ConfigError(f"{place} names the file {name!r}; set {key} to its folder.")
    try:
        path = (root / name).resolve()
        inside, found = path.is_relative_to(root.resolve()), path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, circular links
        raise ConfigError(f"{place}: {_short(name)} is no path of an image: {error}.") from error
    if not inside:
        raise ConfigError(f"{place}: {_short(name)} leads out of {root}; images lie below {key}.")
    if not found:
        raise ConfigError(f"{place}: there is no file {name!r} below {root}; set {key}.")
    return path


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
