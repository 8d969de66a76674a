"""Builds samples from the items of a request. Images are PNG files, which are opened first, so that
their size is known, and decoded later."""

import base64
import io
import math
from dataclasses import replace

from PIL import Image

from mmrl.rewards.server.wire import MAX_TEXT, Item, Png, Problem
from mmrl.types import Sample


class ImageError(ValueError):
    """An image that is refused; `code` is `decode_failed` or `too_many_pixels`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def open_image(png: Png, max_pixels: int) -> Image.Image:
    """The file, not decoded; Pillow limits the size of its texts.

    Raises:
        ImageError: it claims more than `max_pixels`, or is no whole PNG file.
    """
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


def decode(image: Image.Image) -> Image.Image:
    """The image, in the mode it was saved in, without texts and colour profiles.

    Raises:
        ImageError: pixels are missing.
    """
    try:
        image.load()
    except Exception as error:  # decoders raise various errors on broken files
        raise _damage(error) from error
    found = image.copy()
    found.info = {key: value for key, value in image.info.items() if key == "transparency"}
    found.format = "PNG"
    return found


def _damage(error: Exception) -> ImageError:
    reason = f"The image cannot be read: {type(error).__name__} ({error})."
    is_bomb = isinstance(error, Image.DecompressionBombError)
    return ImageError("too_many_pixels" if is_bomb else "decode_failed", reason[:300])


def open_sample(item: Item, max_pixels: int) -> Sample | Problem:
    """The sample of an item with images that are not decoded, or the reason why there is none."""
    is_text = item.completion is not None
    if is_text == bool(item.images) or len(item.images) > 1:
        has = f"{'a' if is_text else 'no'} completion and {len(item.images)} images"
        return Problem("bad_item", f"An item needs a completion or one image, and has {has}.")
    longest = max(len(item.prompt), len(item.completion or ""))
    if longest > MAX_TEXT:
        reason = f"A text may have {MAX_TEXT:,} characters; this one has {longest:,}."
        return Problem("too_long", reason)
    try:
        images = [open_image(png, max_pixels) for png in (*item.images, *item.reference_images)]
    except ImageError as error:
        return Problem(error.code, str(error))
    completion = images.pop(0) if item.completion is None else item.completion
    return Sample(item.prompt, completion, item.metadata, images or None)


def count_pixels(sample: Sample) -> int:
    """Pixels of the images of a sample."""
    completion = sample.completion
    images = [*(sample.images or ()), *([] if isinstance(completion, str) else [completion])]
    return sum(math.prod(image.size) for image in images)


def decode_sample(sample: Sample | Problem) -> Sample | Problem:
    """The sample with its images decoded, or the reason why there is none."""
    if isinstance(sample, Problem):
        return sample
    completion, images = sample.completion, sample.images
    try:
        whole = completion if isinstance(completion, str) else decode(completion)
        return replace(sample, completion=whole, images=images and list(map(decode, images)))
    except ImageError as error:
        return Problem(error.code, str(error))
