"""What differs between images of the shapes world: background, positions and sizes of objects.

Images are read by their pixels (`mmrl.rewards.detection.shapes_detector`). With A and B the
multisets of the objects' positions, or of their sizes,

    d_background = 1 where the backgrounds differ, and 0 otherwise
    d_position, d_size = 1 - 2 |A ∩ B| / (|A| + |B|)

A position is that of the upper left corner on the 8 x 8 grid of the world. Prompts leave all three
open, so a policy may lose them without losing reward. An image without a background of the world
has no known background, and one without objects no known positions and sizes: such pairs are left
out, so that broken images are not counted as diverse.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from PIL import Image

from mmrl.rewards.detection.shapes_detector import Detection, detect
from mmrl.rollouts.diversity.metrics import Completions

GRID = 8


class Scene(NamedTuple):
    """What an image shows: its background, "" where it is none of the world, and how often objects
    have a position and a size."""

    background: str
    positions: Counter[tuple[int, int]]
    sizes: Counter[str]


class ShapesDiversity:
    """Backgrounds, positions and sizes of the shapes world."""

    reads: ClassVar = "images"
    values: ClassVar = ("background", "position", "size")

    def describe(self, completions: Completions) -> Sequence[Any]:
        """The scene of each image."""
        images = (image for image in completions.completions if isinstance(image, Image.Image))
        return [_read(detect(image)) for image in images]

    def compare(self, one: Scene, other: Scene) -> Sequence[float]:
        """Each from 0 to 1."""
        known = one.background and other.background
        background = float(one.background != other.background) if known else float("nan")
        return [
            background,
            _unshared(one.positions, other.positions),
            _unshared(one.sizes, other.sizes),
        ]


def _read(detection: Detection) -> Scene:
    boxes = [found.box for found in detection.objects]
    corners = Counter((round(left * GRID), round(top * GRID)) for left, top, _, _ in boxes)
    return Scene(detection.background or "", corners, Counter(o.size for o in detection.objects))


def _unshared(one: Counter[Any], other: Counter[Any]) -> float:
    if not one or not other:
        return float("nan")
    return 1 - 2 * (one & other).total() / (one.total() + other.total())
