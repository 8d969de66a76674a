"""The shapes edit reward: is an image of the shapes world edited as asked, and nothing else?

The edited image must show what the metadata asks for (`include`, `exclude`: GenEval's, of the
image after the edit, see `mmrl.rewards.shapes`), and keep what the instruction leaves alone: every
other object of the source image with its shape, colour, size and place, and the background. An
object that is changed (`edited` names its shape, or says background) stays at its place. All of it
is judged by the pixels of the source and of the edited image.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from PIL import Image

from mmrl.config import Settings, check_choice
from mmrl.rewards.detection.geneval_rules import Condition, score_conditions
from mmrl.rewards.detection.shapes_detector import SHAPES, DetectedObject, Detection, detect
from mmrl.rewards.parsing.images import image_of
from mmrl.rewards.shapes import check_asked, conditions
from mmrl.types import Sample

TAGS = ("recolor", "replace", "remove", "add", "background")
"""Kinds of edits."""
AT_HOME = 0.08
"""How far the centre of an object that stays may move, as a share of the image's side."""


@dataclass(kw_only=True, eq=False)
class ShapesEditReward(Settings):
    """Score edits of images of the shapes world."""

    where: ClassVar[str] = "shapes_edit"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    mode: Literal["strict", "partial"] = "strict"
    """`strict` gives 1.0 when every condition holds and else 0.0; `partial` gives the share of the
    conditions that hold."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Scores in [0, 1]; None without `edited` or a source image."""
        return [self._score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `edited` is not of an edit of the shapes world."""
        if "edited" in metadata:
            check_asked(metadata, TAGS)
            name = metadata["edited"]
            check_choice("metadata.edited", name, (*SHAPES, "background"))

    def _score(self, sample: Sample) -> float | None:
        if "edited" not in sample.metadata or not sample.images:
            return None
        self.check(sample.metadata)
        edited = image_of(sample, "shapes_edit")
        return score_conditions(judge(sample.images[0], edited, sample.metadata), self.mode)


def judge(source: Image.Image, edited: Image.Image, metadata: Mapping[str, Any]) -> list[Condition]:
    """The conditions of an edit from the image before it to the image after it, each with whether
    it holds; metadata has `include`, `edited` and, optionally, `exclude`."""
    before, after = detect(source), detect(edited)
    return [*conditions(after, metadata), *_kept(before, after, metadata)]


def _kept(before: Detection, after: Detection, metadata: Mapping[str, Any]) -> Iterator[Condition]:
    if not any("background" in clause for clause in metadata["include"]):
        same = before.background == after.background
        yield same, f"expected the {before.background} background, found {after.background}"
    asked = {clause["class"] for clause in metadata["include"]}
    for item in before.objects:
        if item.shape != metadata["edited"]:
            found = any(_is_same(item, other) for other in after.objects)
            yield found, f"expected the {item.color} {item.shape} where it was"
        elif metadata["tag"] in ("recolor", "replace"):
            allowed = asked if metadata["tag"] == "replace" else {item.shape}
            found = any(other.shape in allowed and _at(item, other) for other in after.objects)
            yield found, f"expected what the {item.shape} became where it was"


def _is_same(item: DetectedObject, other: DetectedObject) -> bool:
    kinds = ((each.shape, each.color, each.size) for each in (item, other))
    return len(set(kinds)) == 1 and _at(item, other)


def _at(item: DetectedObject, other: DetectedObject) -> bool:
    """Whether two objects have the same place."""
    pairs = zip(_centre(item), _centre(other), strict=True)
    return all(abs(a - b) <= AT_HOME for a, b in pairs)


def _centre(item: DetectedObject) -> tuple[float, float]:
    left, top, right, bottom = item.box
    return (left + right) / 2, (top + bottom) / 2
