"""Builds samples from the items of a request. Images are PNG files whose size is known, by their
header, before they are decoded."""

import base64
import io
import struct

from PIL import Image

from mmrl.rewards.server.wire import MAX_TEXT, Item, Png, Problem
from mmrl.types import Sample

HEADER = struct.Struct(">8s4x4sII")
"""Signature, and length, name, width and height of the first chunk."""
HEADER_CHARACTERS = 44
"""Characters of base64 that hold it."""


class ImageError(ValueError):
    """An image that is refused; `code` is `decode_failed` or `too_many_pixels`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def claimed_size(png: Png) -> tuple[int, int]:
    """Width and height by the header.

    Raises:
        ImageError: there is no header.
    """
    try:
        head = base64.b64decode(png.data[:HEADER_CHARACTERS], validate=True)
        signature, name, width, height = HEADER.unpack(head[: HEADER.size])
    except (ValueError, struct.error) as error:
        raise ImageError("decode_failed", f"The image cannot be read: {error}.") from error
    if (signature, name) != (b"\x89PNG\r\n\x1a\n", b"IHDR"):
        raise ImageError("decode_failed", "The image cannot be read: it is not in PNG format.")
    return width, height


def claimed_pixels(item: Item, max_pixels: int) -> int:
    """Pixels of an item's images, without those that will be refused."""
    found = 0
    for png in (*item.images, *item.reference_images):
        try:
            width, height = claimed_size(png)
        except ImageError:
            continue
        found += width * height if width * height <= max_pixels else 0
    return found


def decode(png: Png, max_pixels: int) -> Image.Image:
    """The image, in the mode it was saved in, without texts and colour profiles.

    Raises:
        ImageError: it claims more than `max_pixels`, or is no whole PNG file.
    """
    width, height = claimed_size(png)
    if width * height > max_pixels:
        reason = f"{width} x {height} pixels; an image may have {max_pixels}."
        raise ImageError("too_many_pixels", reason)
    try:
        file = io.BytesIO(base64.b64decode(png.data, validate=True))
        Image.open(file, formats=("PNG",)).verify()  # all checksums; Pillow limits texts
        image = Image.open(file, formats=("PNG",))
        if image.size != (width, height):
            raise ValueError("it has two headers")
        image.load()
    except Exception as error:  # decoders raise various errors on broken files
        reason = f"The image cannot be read: {type(error).__name__} ({error})."
        raise ImageError("decode_failed", reason) from error
    found = image.copy()
    found.info = {key: value for key, value in image.info.items() if key == "transparency"}
    found.format = "PNG"
    return found


def build_sample(item: Item, max_pixels: int) -> Sample | Problem:
    """The sample of an item, or the reason why there is none."""
    is_text = item.completion is not None
    if is_text == bool(item.images) or len(item.images) > 1:
        has = f"{'a' if is_text else 'no'} completion and {len(item.images)} images"
        return Problem("bad_item", f"An item needs a completion or one image, and has {has}.")
    longest = max(len(item.prompt), len(item.completion or ""))
    if longest > MAX_TEXT:
        reason = f"A text may have {MAX_TEXT:,} characters; this one has {longest:,}."
        return Problem("too_long", reason)
    try:
        references = [decode(png, max_pixels) for png in item.reference_images] or None
        if item.completion is not None:
            return Sample(item.prompt, item.completion, item.metadata, references)
        image = decode(item.images[0], max_pixels)
        return Sample(item.prompt, image, item.metadata, references)
    except ImageError as error:
        return Problem(error.code, str(error))
