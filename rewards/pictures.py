"""The picture of a sample, as the RGB image every image reward expects."""

from __future__ import annotations

from PIL import Image

from mmrl.types import Sample


def picture_of(sample: Sample, reward: str) -> Image.Image:
    """The completion of `sample` in mode RGB.

    Args:
        sample: its completion must be a PIL image of any mode.
        reward: name of the asking reward, for the message.

    Raises:
        ValueError: the completion is not an image.
    """
    if not isinstance(sample.completion, Image.Image):
        raise ValueError(
            f"reward {reward!r} scores images, but the completion for prompt {sample.prompt[:80]!r}"
            f" is a {type(sample.completion).__name__}; give this reward only to tasks that"
            " generate images."
        )
    return as_rgb(sample.completion)


def as_rgb(image: Image.Image) -> Image.Image:
    """Any PIL image in mode RGB; transparent parts show white, as on a page."""
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        page = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(page, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
