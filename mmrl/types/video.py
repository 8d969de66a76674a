"""A video as a completion: frames in memory, a compressed clip in files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    import numpy as np

QUALITY = 80
"""Of the frames of a clip, from 0 to 100, as WebP has it."""
FRAME_RULES = ("first", "last", "middle", "mean")
"""Which frames a reward of images scores; `mean` is the mean of the scores of all."""


@dataclass(frozen=True, eq=False)
class Video:
    """Frames and their rate.

    Attributes:
        frames: [T, H, W, 3] uint8, RGB.
        fps: frames per second.
    """

    frames: np.ndarray
    fps: float = 16.0

    def __len__(self) -> int:
        return len(self.frames)

    def image(self, n: int) -> Image.Image:
        """A frame, counted from the end where it is negative."""
        return Image.fromarray(self.frames[n])

    def clip(self, side: int | None = None) -> bytes:
        """An animated WebP that plays again and again, at most `side` pixels wide and high."""
        images = [self.image(n) for n in range(len(self))]
        if side is not None:
            for image in images:
                image.thumbnail((side, side))
        return write_clip(images, 1000 / self.fps)


def choose_frames(number: int, rule: str) -> list[int]:
    """The frames of a video of so many that a rule of `FRAME_RULES` names."""
    return {"first": [0], "last": [number - 1], "middle": [number // 2]}.get(rule, [*range(number)])


def write_clip(images: Sequence[Image.Image], milliseconds: float) -> bytes:
    """Images of one size as an animated WebP, each shown so long; equal neighbours become one that
    is shown longer."""
    buffer, shown = io.BytesIO(), round(milliseconds)
    more = {"append_images": images[1:], "duration": shown, "loop": 0, "quality": QUALITY}
    images[0].save(buffer, format="WEBP", save_all=True, **more)
    return buffer.getvalue()
