"""The shapes reward: does the image show what a GenEval prompt of the shapes world asks for?

The rules follow GenEval's `evaluate_image` (Ghosh et al., 2023, arXiv:2310.11513): a clause of
`include` takes its best `count` boxes of the class and needs no fewer, an `exclude` clause fails
once its count is reached, colours are judged on the boxes taken, positions by box geometry.
One rule is added: the image must show nothing that the prompt does not ask for. Without it a policy
learns to fill its images, because an extra object can only help. `exact=False` is GenEval's rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from PIL import Image

from mmrl.types import Sample
from rewards.shapes_detector import (
    BACKGROUNDS,
    COLORS,
    SHAPES,
    SIZES,
    DetectedObject,
    Detection,
    detect,
)

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
RELATIONS = ("left of", "right of", "above", "below")
POSITION_MARGIN = 0.1
MODES = ("strict", "partial")
_ATTRIBUTES = {"class": SHAPES, "color": COLORS, "size": SIZES, "background": BACKGROUNDS}
_CLAUSE_KEYS = (*_ATTRIBUTES, "count", "position")


@dataclass(frozen=True)
class Verdict:
    """How far an image fulfils a prompt.

    Attributes:
        strict: Whether every condition holds.
        partial: Share of the conditions that hold, in [0, 1]. Conditions are: the count of each
            clause, each of its attributes, each position, each exclusion; if `exact`, everything
            shown that was not asked for is one more that fails.
        reason: The conditions that fail, in words; empty when none does.
        objects: What was found in the image.
    """

    strict: bool
    partial: float
    reason: str
    objects: tuple[DetectedObject, ...]


class ShapesReward:
    """Score images against GenEval metadata of the shapes world.

    Args:
        mode: `strict` gives 1.0 when every condition holds and else 0.0; `partial` gives the share
            of the conditions that hold.
        exact: Whether anything the prompt does not ask for counts against an image; False is
            GenEval's rule.

    Raises:
        ValueError: If the mode is unknown.
    """

    scale: ClassVar[str] = "0 to 1"
    needs: ClassVar[tuple[str, ...]] = ("images", "metadata")

    def __init__(self, mode: Literal["strict", "partial"] = "strict", exact: bool = True) -> None:
        if mode not in MODES:
            raise ValueError(f"mode={mode!r} is not allowed: use {' or '.join(MODES)}.")
        self.mode, self.exact = mode, exact

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Score a batch.

        Returns:
            One score in [0, 1] per sample; None where the metadata has no `include`.

        Raises:
            ValueError: If metadata is malformed or a completion is not an image.
        """
        return [self._score(sample) for sample in samples]

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise a ValueError where metadata with `include` is not of the shapes world."""
        if "include" in metadata:
            check_metadata(metadata)

    def _score(self, sample: Sample) -> float | None:
        if "include" not in sample.metadata:
            return None
        if not isinstance(sample.completion, Image.Image):
            raise ValueError(
                f"The shapes reward looks at images, and the completion of {sample.prompt!r} is "
                f"a {type(sample.completion).__name__}; use it on text-to-image tasks only."
            )
        verdict = verify(sample.completion, sample.metadata, self.exact)
        return float(verdict.strict) if self.mode == "strict" else verdict.partial


def verify(image: Image.Image, metadata: dict[str, Any], exact: bool = True) -> Verdict:
    """Judge an image by its pixels.

    Args:
        image: An image of any size.
        metadata: GenEval's `tag`, `include` and, optionally, `exclude`. A clause of `include` may
            also name a `size` and a `background`.
        exact: Whether an object nobody asked for, or a patch that is no shape, is a failure.

    Returns:
        The verdict, with the objects found.

    Raises:
        ValueError: If the tag is unknown or the metadata is malformed; the message names the part.
    """
    check_metadata(metadata)
    detection = detect(image)
    conditions = [*_include(metadata, detection), *_exclude(metadata, detection)]
    if exact:
        conditions.extend(_unasked(metadata, detection))
    failed = [text for holds, text in conditions if not holds]
    partial = 1 - len(failed) / len(conditions)
    return Verdict(not failed, partial, "; ".join(failed), detection.objects)


def _include(metadata: dict[str, Any], detection: Detection) -> Iterator[tuple[bool, str]]:
    groups = [_best_boxes(clause, detection) for clause in metadata["include"]]
    for clause, taken in zip(metadata["include"], groups, strict=True):
        shape, count = clause["class"], clause["count"]
        complete = len(taken) >= count
        yield complete, f"expected {count} {shape}, found {len(taken)}"
        for name in ("color", "size"):
            if name in clause:
                found = [getattr(item, name) for item in taken]
                yield (
                    found.count(clause[name]) >= count,
                    (f"expected {count} {clause[name]} {shape}, found {_listed(found)}"),
                )
        if "background" in clause:
            text = f"expected a {clause['background']} background, found {detection.background}"
            yield detection.background == clause["background"], text
        if "position" in clause:
            relation, other = clause["position"]
            holds = bool(taken and groups[other]) and all(
                relation in relations(a, b) for a in taken for b in groups[other]
            )
            yield holds, f"expected {shape} {relation} {metadata['include'][other]['class']}"


def _listed(words: list[str]) -> str:
    return ", ".join(words) or "none"


def _best_boxes(clause: dict[str, Any], detection: Detection) -> list[DetectedObject]:
    of_class = [item for item in detection.objects if item.shape == clause["class"]]
    return of_class[: clause["count"]]


def _exclude(metadata: dict[str, Any], detection: Detection) -> Iterator[tuple[bool, str]]:
    for clause in metadata.get("exclude", ()):
        found = sum(item.shape == clause["class"] for item in detection.objects)
        text = f"expected fewer than {clause['count']} {clause['class']}, found {found}"
        yield found < clause["count"], text


def _unasked(metadata: dict[str, Any], detection: Detection) -> Iterator[tuple[bool, str]]:
    asked = Counter[str]()
    for clause in metadata["include"]:
        asked[clause["class"]] += clause["count"]
    extra = Counter(item.shape for item in detection.objects) - asked
    for name in [*sorted(extra.elements()), *["patch of no known shape"] * detection.strays]:
        yield False, f"nobody asked for this {name}"


def relations(a: DetectedObject, b: DetectedObject) -> set[str]:
    """Name where `a` lies relative to `b`: GenEval's `relative_position`.

    The offset between the centres is shortened by a tenth of the summed extents on each axis; a
    direction holds if it makes up more than half of what is left. A diagonal has two names.
    """
    rest = []
    for axis in (0, 1):
        extents = a.box[axis + 2] - a.box[axis] + b.box[axis + 2] - b.box[axis]
        offset = (a.box[axis] + a.box[axis + 2] - b.box[axis] - b.box[axis + 2]) / 2
        shortened = max(abs(offset) - POSITION_MARGIN * extents, 0.0)
        rest.append(shortened if offset > 0 else -shortened)
    length = (rest[0] ** 2 + rest[1] ** 2) ** 0.5
    if length == 0:
        return set()
    along = (-rest[0], rest[0], -rest[1], rest[1])
    return {name for name, part in zip(RELATIONS, along, strict=True) if part / length > 0.5}


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check GenEval metadata of the shapes world.

    Raises:
        ValueError: If the tag is unknown, `include` is missing or empty, or a clause has an
            unknown key or a value the world does not know.
    """
    if metadata.get("tag") not in TAGS:
        raise ValueError(f"Unknown tag {metadata.get('tag')!r}; allowed are {', '.join(TAGS)}.")
    include, exclude = metadata.get("include"), metadata.get("exclude", [])
    if not isinstance(include, list) or not include:
        raise ValueError(f"include={include!r} must be a list of at least one clause.")
    if not isinstance(exclude, list):
        raise ValueError(f"exclude={exclude!r} must be a list of clauses.")
    for clause in (*include, *exclude):
        _check_clause(clause, len(include))


def _check_clause(clause: Any, clauses: int) -> None:
    if not isinstance(clause, dict) or not {"class", "count"} <= clause.keys():
        raise ValueError(f"The clause {clause!r} must be a mapping with 'class' and 'count'.")
    for name, value in clause.items():
        if name not in _CLAUSE_KEYS:
            raise ValueError(
                f"Unknown key {name!r} in clause {clause!r}; allowed are {', '.join(_CLAUSE_KEYS)}."
            )
        if name in _ATTRIBUTES and value not in _ATTRIBUTES[name]:
            allowed = ", ".join(_ATTRIBUTES[name])
            raise ValueError(f"{name}={value!r} is not in the shapes world; it has {allowed}.")
    count, position = clause["count"], clause.get("position", (RELATIONS[0], 0))
    if type(count) is not int or count < 1:
        raise ValueError(f"count={count!r} in clause {clause!r} must be a whole number from 1.")
    if not _is_position(position, clauses):
        raise ValueError(
            f"position={position!r} must be [relation, index of an include clause] with a relation "
            f"out of {', '.join(RELATIONS)}."
        )


def _is_position(position: Any, clauses: int) -> bool:
    if not isinstance(position, (list, tuple)) or len(position) != 2:
        return False
    relation, other = position
    return relation in RELATIONS and type(other) is int and 0 <= other < clauses
