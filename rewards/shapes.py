"""The shapes reward: does the image show what a GenEval prompt of the shapes world asks for?

The rules are GenEval's (`mmrl.rewards.detection.geneval_rules`), applied to the objects that
`mmrl.rewards.detection.shapes_detector` finds. One rule is added: the image must show nothing that
the prompt does not ask for. Without it a policy learns to fill its images, because an extra object
can only help. `exact=False` is GenEval's rule.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from PIL import Image

from mmrl.config import Settings
from mmrl.rewards.detection.geneval_rules import (
    TAGS,
    Condition,
    check_metadata,
    exclude_conditions,
    find_directions,
    include_conditions,
    score_conditions,
    shorten_offset,
)
from mmrl.rewards.detection.shapes_detector import (
    BACKGROUNDS,
    COLORS,
    SHAPES,
    SIZES,
    DetectedObject,
    Detection,
    detect,
)
from mmrl.rewards.parsing.images import image_of
from mmrl.types import Sample

_ATTRIBUTES = {"class": SHAPES, "color": COLORS, "size": SIZES, "background": BACKGROUNDS}
_SEEN = {
    "color": lambda taken, _: [item.color for item in taken],
    "size": lambda taken, _: [item.size for item in taken],
}


@dataclass(kw_only=True, eq=False)
class ShapesReward(Settings):
    """Score images against GenEval metadata of the shapes world."""

    where: ClassVar[str] = "shapes"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    mode: Literal["strict", "partial"] = "strict"
    """`strict` gives 1.0 when every condition holds and else 0.0; `partial` gives the share of the
    conditions that hold."""
    exact: bool = True
    """Whether what the prompt does not ask for counts against an image; GenEval: False."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None without `include`."""
        return [self._score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not of the shapes world."""
        if "include" in metadata:
            check_asked(metadata)

    def _score(self, sample: Sample) -> float | None:
        if "include" not in sample.metadata:
            return None
        judged = verify(image_of(sample, "shapes"), sample.metadata, self.exact)
        return score_conditions(judged, self.mode)


def verify(image: Image.Image, metadata: dict[str, Any], exact: bool = True) -> list[Condition]:
    """What a prompt asks for, each with whether an image of any size fulfils it, judged by its
    pixels.

    Conditions are: the count of each clause, each of its attributes, each position, each exclusion;
    if `exact`, everything shown that was not asked for, also a patch that is no shape, is one more
    that fails. Metadata are GenEval's; a clause of `include` may also name a `size` and a
    `background`. Raises ConfigError: they are malformed; the message names the part."""
    check_asked(metadata)
    return conditions(detect(image), metadata, exact)


def check_asked(metadata: Mapping[str, Any], tags: Sequence[str] = TAGS) -> None:
    """Raise a ValueError for metadata that is not of the shapes world; `tags` are allowed."""
    check_metadata(metadata, _ATTRIBUTES, tags)


def conditions(
    detection: Detection, metadata: Mapping[str, Any], exact: bool = True
) -> list[Condition]:
    """What checked metadata asks for, each with whether an image fulfils it; see `verify`."""
    found: dict[str, list[DetectedObject]] = {}
    for item in detection.objects:
        found.setdefault(item.shape, []).append(item)
    return [
        *include_conditions(metadata["include"], found, _SEEN, find_relations),
        *_backgrounds(metadata, detection),
        *exclude_conditions((metadata.get("exclude") or ()), found),
        *(_unasked(metadata, detection) if exact else ()),
    ]


def _backgrounds(metadata: Mapping[str, Any], detection: Detection) -> Iterator[Condition]:
    for clause in metadata["include"]:
        if "background" in clause:
            text = f"expected a {clause['background']} background, found {detection.background}"
            yield detection.background == clause["background"], text


def _unasked(metadata: Mapping[str, Any], detection: Detection) -> Iterator[Condition]:
    asked = Counter[str]()
    for clause in metadata["include"]:
        asked[clause["class"]] += clause["count"]
    extra = Counter(item.shape for item in detection.objects) - asked
    for name in [*sorted(extra.elements()), *["patch of no known shape"] * detection.strays]:
        yield False, f"not asked for: {name}"


def find_relations(a: DetectedObject, b: DetectedObject) -> set[str]:
    """Name where `a` lies relative to `b`.

    Like GenEval's rule, but a direction holds if it is more than half of the shortened offset, not
    of the whole offset: for close objects more diagonals have two names.
    """
    _, rest = shorten_offset(a.box, b.box)
    length = (rest[0] ** 2 + rest[1] ** 2) ** 0.5
    return find_directions(rest, length) if length else set()
