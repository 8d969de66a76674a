"""A video as a completion: frames in memory, a compressed clip in files."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageSequence

if TYPE_CHECKING:
    import numpy as np

QUALITY = 80
"""Of the frames of a clip, from 0 to 100, as WebP has it."""
FRAME_RULES = ("first", "last", "middle", "spread", "mean")
"""Which frames a reward of images scores; several have the mean of their scores."""
SPREAD = 8
"""Frames of `spread`, evenly spaced from the first to the last, as UniRL's `video` takes them."""
DESCRIPTION, _DESCRIBED = 270, re.compile(r"(\d{1,9}) frames at (\d+\.\d{1,20}) per second")
"""EXIF tag of a clip, and what it says: equal neighbours are one frame, and rates are rounded."""


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

    def file(self) -> bytes:
        """A lossless animated WebP, which `read_clip` reads as the same frames and rate."""
        about = Image.Exif()
        about[DESCRIPTION] = f"{len(self)} frames at {float(self.fps)!r} per second"
        images = [self.image(n) for n in range(len(self))]
        lossless = {"lossless": True, "method": 0, "exif": about}
        return write_clip(images, 1000 / self.fps, **lossless)


def choose_frames(number: int, rule: str) -> list[int]:
    """The frames of a video of so many that a rule of `FRAME_RULES` names."""
    one = {"first": [0], "last": [number - 1], "middle": [number // 2]}
    return one.get(rule) or spread_frames(number, SPREAD if rule == "spread" else number)


def spread_frames(number: int, wanted: int) -> list[int]:
    """Evenly spaced frames of a video of so many, the first and the last among them; some twice
    where more are wanted than there are."""
    return [n * (number - 1) // max(1, wanted - 1) for n in range(wanted)]


def write_clip(images: Sequence[Image.Image], milliseconds: float, **options: Any) -> bytes:
    """Images of one size as an animated WebP, each shown so long; equal neighbours become one that
    is shown longer. `options` are Pillow's."""
    buffer, shown = io.BytesIO(), max(1, round(milliseconds))
    more = {"append_images": images[1:], "duration": shown, "loop": 0, "quality": QUALITY}
    images[0].save(buffer, format="WEBP", save_all=True, **{**more, **options})
    return buffer.getvalue()


def count_frames(clip: Image.Image) -> int:
    """The frames of an opened clip, by what it says of itself; none is decoded."""
    said = _describe(clip)
    return max(getattr(clip, "n_frames", 1), said[0] if said else 0)


def read_clip(clip: Image.Image) -> Video:
    """The video of an opened clip; a frame that is shown for longer is as many as that. Raises
    OSError, ValueError: it is damaged, or has other frames than it says."""
    import numpy as np

    frames: list[Any] = []
    shown: list[int] = []
    for frame in ImageSequence.Iterator(clip):
        frames.append(np.asarray(frame.convert("RGB")))
        shown.append(max(1, frame.info.get("duration", 100)))
    number, fps = _describe(clip) or (0, 1000 / min(shown))
    each = max(1, round(1000 / fps))
    times = [number] if number and len(shown) == 1 else [round(time / each) for time in shown]
    if number not in (0, sum(times)):
        raise ValueError(f"the clip has {sum(times)} frames, and says {number}")
    shown_as = zip(frames, times, strict=True)
    return Video(np.stack([frame for frame, n in shown_as for _ in range(n)]), fps)


def _describe(clip: Image.Image) -> tuple[int, float] | None:
    """Frames and rate that `Video.file` wrote into a clip; None in those of others."""
    found = _DESCRIBED.fullmatch(str(clip.getexif().get(DESCRIPTION)))
    return (int(found[1]), float(found[2])) if found and 0 < float(found[2]) < 1e4 else None
