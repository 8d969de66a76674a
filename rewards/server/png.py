"""An image of a request: PNG, checked chunk by chunk, decoded only when its size is known.

Chunks that do not affect pixels are dropped before Pillow reads the file: texts and colour profiles
are compressed and can expand to a thousand times their size, and further frames are not part of an
image. The remaining chunks decode to the image that was saved.
"""

import base64
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEPT = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
MAX_CHUNKS = 2**14


class ImageError(ValueError):
    """An image that is refused.

    Args:
        code: `decode_failed` or `too_many_pixels`.
        message: the reason.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class PngFile:
    """A PNG file with complete chunks; its pixels may still be damaged."""

    data: bytes
    width: int
    height: int

    @property
    def pixels(self) -> int:
        """How many pixels its header claims."""
        return self.width * self.height

    def decode(self) -> Image.Image:
        """The image, in the mode it was saved in.

        Raises:
            ImageError: the pixels are damaged or truncated.
        """
        try:
            image = Image.open(io.BytesIO(self.data), formats=("PNG",))
            image.load()
        except Exception as error:  # decoders raise various errors on broken files
            raise _damage_error(f"its pixels cannot be decoded ({type(error).__name__})") from error
        return image


def read_png(text: str, max_pixels: int) -> PngFile:
    """A file from its base64 text; nothing is decoded.

    Raises:
        ImageError: it is not a complete PNG file, or claims more than `max_pixels`.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise _damage_error("it is no base64") from error
    chunks = list(_chunks(data))
    if not chunks or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 25:
        raise _damage_error("it has no header")
    header = bytes(chunks[0][1])
    width, height = int.from_bytes(header[8:12], "big"), int.from_bytes(header[12:16], "big")
    if width * height > max_pixels:
        raise ImageError(
            "too_many_pixels", f"{width} x {height} pixels; an image may have {max_pixels}."
        )
    kept = [chunk for kind, chunk in chunks if kind in KEPT]
    return PngFile(b"".join((SIGNATURE, *kept)), width, height)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """(type, whole chunk with length, type and checksum) up to and with the end."""
    if not data.startswith(SIGNATURE):
        raise _damage_error("it is not in PNG format")
    at, view = len(SIGNATURE), memoryview(data)
    for _ in range(MAX_CHUNKS):
        size = int.from_bytes(view[at : at + 4], "big")
        chunk = view[at : at + 12 + size]
        if len(chunk) < 12 + size:
            raise _damage_error("it is truncated")
        if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
            raise _damage_error("a checksum is wrong")
        kind = bytes(chunk[4:8])
        yield kind, chunk
        at += len(chunk)
        if kind == b"IEND":
            return
    raise _damage_error(f"it has more than {MAX_CHUNKS} chunks")


def _damage_error(reason: str) -> ImageError:
    return ImageError("decode_failed", f"The image cannot be read: {reason}.")
