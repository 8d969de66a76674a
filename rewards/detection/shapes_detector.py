"""Find the objects of the shapes world in an image by its pixels.

The detector uses the palette, shapes and relative sizes of the world and none of its drawing code.
It scales every image to 32 pixels a side and tolerates artefacts of image decoders: blur, ringing,
small noise, shifted colours.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

COLORS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (40, 80, 220),
    "yellow": (245, 220, 50),
    "purple": (150, 50, 190),
    "orange": (245, 140, 30),
    "white": (250, 250, 250),
    "black": (5, 5, 5),
}
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "grey": (125, 125, 125),
    "tan": (190, 170, 145),
    "teal": (95, 135, 140),
    "slate": (70, 78, 110),
}
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
SIZES = ("small", "large")

WORKING_SIDE = 32
LARGE_FROM = 10 / 32  # between the two sizes of the world, 8/32 and 12/32 of the image
SIDE_RANGE = (5.5, 15.5)
MAX_ASPECT = 1.45
MIN_FIT = 0.8
MIN_BACKGROUND_SHARE = 0.25
MAX_COLOR_DISTANCE = 75.0
MIN_CONTRAST = 42.0
STRAY_PIXELS = 6
EDGE = 0.4
TEMPLATE_SIDE = 12

_NAMES = (*COLORS, *BACKGROUNDS)
_PALETTE = np.array([*COLORS.values(), *BACKGROUNDS.values()], dtype=np.float32)
_PALETTE_NORMS = (_PALETTE**2).sum(1)


@dataclass(frozen=True)
class DetectedObject:
    """One object found in an image: a shape out of `SHAPES`, a colour of `COLORS`, a size of
    `SIZES`; `box` is left, top, right, bottom as shares of the image's side, `fit` the overlap with
    the best template in [0, 1], which corresponds to a detector's confidence."""

    shape: str
    color: str
    size: str
    box: tuple[float, float, float, float]
    fit: float


@dataclass(frozen=True)
class Detection:
    """What an image shows: one of `BACKGROUNDS` or None, the shapes found, best fit first, and the
    number of patches that differ from the background and are no shape of the world (`strays`)."""

    background: str | None
    objects: tuple[DetectedObject, ...]
    strays: int


def detect(image: Image.Image) -> Detection:
    """Find background and objects in an image of any size and mode. Patches that are no shape of
    the world, or have none of its colours, are counted as strays; specks below `STRAY_PIXELS` are
    not."""
    from scipy import ndimage

    pixels = _working_pixels(image)
    flat = pixels.reshape(-1, 3)
    nearest = np.argmin(_PALETTE_NORMS - 2 * flat @ _PALETTE.T, axis=1)
    counts = np.bincount(nearest, minlength=len(_NAMES))
    counts[: len(COLORS)] = 0
    tone = int(counts.argmax())
    if counts[tone] < MIN_BACKGROUND_SHARE * len(flat):
        return Detection(None, (), 0)
    ground = flat[nearest == tone].mean(0)
    offset = pixels - ground
    distance = np.sqrt(np.einsum("hwc,hwc->hw", offset, offset))
    labels = np.empty(distance.shape, dtype=np.int32)
    ndimage.label(distance > MIN_CONTRAST, output=labels)
    objects, strays = [], 0
    for i, window in enumerate(ndimage.find_objects(labels)):
        component = labels == i + 1
        found = _object_in(offset, distance, component, window, ground)
        if found is not None:
            objects.append(found)
        elif component.sum() >= STRAY_PIXELS:
            strays += 1
    objects.sort(key=lambda item: -item.fit)
    return Detection(_NAMES[tone], tuple(objects), strays)


def _working_pixels(image: Image.Image) -> np.ndarray:
    image = image.convert("RGB")
    if image.size != (WORKING_SIDE, WORKING_SIDE):
        shrinks = min(image.size) >= WORKING_SIDE
        resample = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
        image = image.resize((WORKING_SIDE, WORKING_SIDE), resample)
    return np.asarray(image, dtype=np.float32)


def _object_in(
    offset: np.ndarray,
    distance: np.ndarray,
    component: np.ndarray,
    window: tuple[slice, slice],
    ground: np.ndarray,
) -> DetectedObject | None:
    rows, columns = (slice(max(s.start - 1, 0), s.stop + 1) for s in window)
    if window[0].stop - window[0].start < 4 or window[1].stop - window[1].start < 4:
        return None
    component, distance, offset = (a[rows, columns] for a in (component, distance, offset))
    inside = distance[component]
    strong = component & (distance >= 0.8 * np.partition(inside, -6)[-6])
    direction = offset[strong].mean(0)
    color = _object_color(direction + ground)
    if color is None:
        return None
    cover = np.clip(offset @ (direction / (direction @ direction)), 0, 1)
    top, bottom = _extent(cover.max(1))
    left, right = _extent(cover.max(0))
    height, width = bottom - top, right - left
    if not _plausible(height, width):
        return None
    shape, fit = _best_shape(cover[top:bottom, left:right])
    if fit < MIN_FIT:
        return None
    x, y = columns.start, rows.start
    sides = (left + x, top + y, right + x, bottom + y)
    left, top, right, bottom = (side / WORKING_SIDE for side in sides)
    size = SIZES[int(max(height, width) / WORKING_SIDE > LARGE_FROM)]
    return DetectedObject(shape, color, size, (left, top, right, bottom), fit)


def _object_color(color: np.ndarray) -> str | None:
    distances = np.sqrt(((_PALETTE - color) ** 2).sum(1))
    best = int(distances.argmin())
    known = best < len(COLORS) and distances[best] <= MAX_COLOR_DISTANCE
    return _NAMES[best] if known else None


def _extent(profile: np.ndarray) -> tuple[int, int]:
    covered = np.flatnonzero(profile > EDGE)
    return int(covered[0]), int(covered[-1]) + 1


def _plausible(height: int, width: int) -> bool:
    small, large = min(height, width), max(height, width)
    return SIDE_RANGE[0] <= small and large <= SIDE_RANGE[1] and large <= MAX_ASPECT * small


def _best_shape(cover: np.ndarray) -> tuple[str, float]:
    templates, names = _templates()
    patch = _normalise(cover)
    shared = np.minimum(templates, patch).sum(1)
    fits = shared / np.maximum(templates, patch).sum(1)
    best = int(fits.argmax())
    return names[best], float(fits[best])


def _normalise(cover: np.ndarray) -> np.ndarray:
    patch = Image.fromarray(cover.astype(np.float32))
    side = (TEMPLATE_SIDE, TEMPLATE_SIDE)
    return np.asarray(patch.resize(side, Image.Resampling.BILINEAR)).reshape(-1)


@lru_cache(maxsize=1)
def _templates() -> tuple[np.ndarray, tuple[str, ...]]:
    """Every shape at both sizes, sharp and blurred, cut out and scaled as components are."""
    from scipy import ndimage

    rows, names = [], []
    for shape in SHAPES:
        for side in (8, 12):
            sharp = np.pad(_ideal_cover(shape, side), 3)
            for blur in (0.0, 0.6, 0.9):
                cover = ndimage.gaussian_filter(sharp, blur) if blur else sharp
                cover = np.clip(cover / cover.max(), 0, 1)
                top, bottom = _extent(cover.max(1))
                left, right = _extent(cover.max(0))
                rows.append(_normalise(cover[top:bottom, left:right]))
                names.append(shape)
    return np.stack(rows), tuple(names)


def _ideal_cover(shape: str, side: int) -> np.ndarray:
    y, x = (np.mgrid[:side, :side] + 0.5) * 2 / side - 1
    radius = np.sqrt(x * x + y * y)
    cover = {
        "circle": radius <= 1,
        "square": radius >= 0,
        "triangle": 2 * abs(x) <= y + 1.2,
        "diamond": abs(x) + abs(y) <= 1.001,
        "cross": np.minimum(abs(x), abs(y)) <= 0.334,
        "ring": abs(radius - 0.75) <= 0.25,
    }[shape]
    return cover.astype(np.float32)
