"""The items of a request as the samples a reward takes."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.types import Sample
from rewards.server.config import PIXEL_BYTES, Limits
from rewards.server.memory import Lease
from rewards.server.png import PictureError, PngFile, read_png
from rewards.server.wire import Item, Problem

TEXT_COPIES = 2
"""Memory of the words of a request, in multiples of their bytes: as sent and as objects."""

Opened = PngFile | str | Problem


def samples_of(
    items: Sequence[Item], body_bytes: int, limits: Limits, lease: Lease
) -> list[Sample | Problem]:
    """One sample per item, or why it is none. The items lose their pictures.

    Args:
        items: of one request.
        body_bytes: length of the request.
        limits: of the server.
        lease: comes to hold the words and the decoded pictures, instead of the body.

    Raises:
        Refusal: the pictures need more memory than there is.
    """
    pictures = sum(len(picture.data) for item in items for picture in item.images)
    opened = [_opened(item, limits.max_pixels) for item in items]
    for item in items:
        item.images.clear()
    files = [file for file in opened if isinstance(file, PngFile)]
    decoded = sum(PIXEL_BYTES * file.pixels for file in files)
    lease.hold(TEXT_COPIES * (body_bytes - pictures) + sum(len(f.data) for f in files) + decoded)
    return [_sample(item, part) for item, part in zip(items, opened, strict=True)]


def _opened(item: Item, max_pixels: int) -> Opened:
    """The completion: a text, or a picture that is not decoded yet."""
    if item.reference_images:
        return Problem(code="unsupported", message="No reward here reads reference images.")
    if (item.completion is not None) == bool(item.images) or len(item.images) > 1:
        reason = "An item needs a completion or one image, and has"
        text = "a" if item.completion is not None else "no"
        return Problem(
            code="bad_item", message=f"{reason} {text} completion and {len(item.images)} images."
        )
    if item.completion is not None:
        return item.completion
    try:
        return read_png(item.images[0].data, max_pixels)
    except PictureError as error:
        return Problem(code=error.code, message=str(error))


def _sample(item: Item, completion: Opened) -> Sample | Problem:
    if isinstance(completion, Problem):
        return completion
    if isinstance(completion, str):
        return Sample(item.prompt, completion, item.metadata)
    try:
        return Sample(item.prompt, completion.decode(), item.metadata)
    except PictureError as error:
        return Problem(code=error.code, message=str(error))
