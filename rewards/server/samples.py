"""Builds samples from the items of a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.rewards.server.png import ImageError, PngFile, read_png
from mmrl.rewards.server.request_memory import Lease
from mmrl.rewards.server.server_config import PIXEL_BYTES, Limits
from mmrl.rewards.server.wire import MAX_TEXT, Item, Problem
from mmrl.types import Sample

TEXT_COPIES = 2
"""Memory of the texts of a request, in multiples of their bytes: body and objects."""


@dataclass(frozen=True)
class Opened:
    """The content of an item before its images are decoded."""

    completion: PngFile | str
    references: list[PngFile]

    @property
    def files(self) -> list[PngFile]:
        """All images of the item."""
        own = [self.completion] if isinstance(self.completion, PngFile) else []
        return [*own, *self.references]


def build_samples(
    items: Sequence[Item], body_bytes: int, limits: Limits, lease: Lease
) -> list[Sample | Problem]:
    """Build one sample per item, or the reason why not. Removes the images of the items.

    Args:
        items: of one request.
        body_bytes: length of the request.
        limits: of the server.
        lease: holds the texts and the decoded images afterwards, instead of the body.

    Raises:
        Refusal: the images need more memory than there is.
    """
    sent = [png for item in items for png in (*item.images, *item.reference_images)]
    encoded = sum(len(png.data) for png in sent)
    opened = [_open(item, limits.max_pixels) for item in items]
    for item in items:
        item.images.clear()
        item.reference_images.clear()
    files = [file for each in opened if isinstance(each, Opened) for file in each.files]
    decoded = sum(PIXEL_BYTES * file.pixels for file in files)
    lease.hold(TEXT_COPIES * (body_bytes - encoded) + sum(len(f.data) for f in files) + decoded)
    return [_sample(item, part) for item, part in zip(items, opened, strict=True)]


def _open(item: Item, max_pixels: int) -> Opened | Problem:
    if (item.completion is not None) == bool(item.images) or len(item.images) > 1:
        reason = "An item needs a completion or one image, and has"
        text = "a" if item.completion is not None else "no"
        return Problem(
            code="bad_item", message=f"{reason} {text} completion and {len(item.images)} images."
        )
    longest = max(len(item.prompt), len(item.completion or ""))
    if longest > MAX_TEXT:
        reason = f"A text may have {MAX_TEXT:,} characters; this one has {longest:,}."
        return Problem(code="too_long", message=reason)
    try:
        references = [read_png(png.data, max_pixels) for png in item.reference_images]
        if item.completion is not None:
            return Opened(item.completion, references)
        return Opened(read_png(item.images[0].data, max_pixels), references)
    except ImageError as error:
        return Problem(code=error.code, message=str(error))


def _sample(item: Item, opened: Opened | Problem) -> Sample | Problem:
    if isinstance(opened, Problem):
        return opened
    completion = opened.completion
    try:
        images = [file.decode() for file in opened.references] or None
        if isinstance(completion, PngFile):
            return Sample(item.prompt, completion.decode(), item.metadata, images)
        return Sample(item.prompt, completion, item.metadata, images)
    except ImageError as error:
        return Problem(code=error.code, message=str(error))
