"""Images as files and data sets hold them."""

import io
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image


def png(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The file of an image, or one of another form; with options of Pillow."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    """A part of the file of a PNG, with its checksum."""
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Put a file into an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def write_images(path: Path, images: Sequence[Image.Image], prompts: Sequence[str]) -> Path:
    """Write a parquet of images with their prompts."""
    features = Features({"image": ImageFeature(), "prompt": Value("string")})
    rows = {"image": list(images), "prompt": list(prompts)}
    Dataset.from_dict(rows, features=features).to_parquet(str(path))
    return path
