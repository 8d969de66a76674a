"""Builds samples from the items of a request. Images are PNG files, whose size is known before they
are decoded."""

import base64
import io
import math
from contextlib import suppress

from PIL import Image

from mmrl.rewards.server.wire import MAX_TEXT, Item, Png, Problem
from mmrl.types import Sample


class ImageError(ValueError):
    """An image that is refused; `code` is `decode_failed` or `too_many_pixels`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def count_pixels(item: Item, max_pixels: int) -> int:
    """Pixels of an item's images, without those that will be refused; nothing is decoded."""
    found = 0
    for png in (*item.images, *item.reference_images):
        with suppress(ImageError):
            found += math.prod(_open(png, max_pixels).size)
    return found


def decode(png: Png, max_pixels: int) -> Image.Image:
    """The image, in the mode it was saved in, without texts and colour profiles.

    Raises:
        ImageError: it claims more than `max_pixels`, or is no whole PNG file.
    """
    image = _open(png, max_pixels)
    try:
        image.load()
    except Exception as error:  # decoders raise various errors on broken files
        raise _damage(error) from error
    found = image.copy()
    found.info = {key: value for key, value in image.info.items() if key == "transparency"}
    found.format = "PNG"
    return found


def _open(png: Png, max_pixels: int) -> Image.Image:
    """The file, whose pixels are decoded later; Pillow limits the size of its texts."""
    try:
        file = io.BytesIO(base64.b64decode(png.data, validate=True))
        Image.open(file, formats=("PNG",)).verify()  # all checksums
        image = Image.open(file, formats=("PNG",))
    except Exception as error:
        raise _damage(error) from error
    if math.prod(image.size) > max_pixels:
        reason = f"{image.width} x {image.height} pixels; an image may have {max_pixels}."
        raise ImageError("too_many_pixels", reason)
    return image


def _damage(error: Exception) -> ImageError:
    reason = f"The image cannot be read: {type(error).__name__} ({error})."
    is_bomb = isinstance(error, Image.DecompressionBombError)
    return ImageError("too_many_pixels" if is_bomb else "decode_failed", reason[:300])


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
