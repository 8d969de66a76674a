"""GenEval's rules on the objects found in an image (Ghosh et al. 2023, arXiv:2310.11513).

A clause of `include` takes its best `count` objects of the class and needs no fewer, an `exclude`
clause fails once its count is reached, attributes are judged on the objects taken, positions by the
geometry of boxes. The rewards `shapes` and `compositional` have different detectors, which find the
objects and their attributes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from mmrl.config import check, check_choice

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
RELATIONS = ("left of", "right of", "above", "below")
_COLORS = "red orange yellow green blue purple pink brown black white"
COLORS = tuple(_COLORS.split())
"""GenEval's colours, in the order of its classifier."""
POSITION_MARGIN = 0.1
_NAMES = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant,
stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe,
backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite,
baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, wine glass, cup, fork,
knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake,
chair, couch, potted plant, bed, dining table, toilet, tv, laptop, computer mouse, tv remote,
computer keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase,
scissors, teddy bear, hair drier, toothbrush
"""
COCO_NAMES = tuple(" ".join(_NAMES.split()).split(", "))
"""COCO's 80 classes in their order, by the names that GenEval's prompts have for them."""

T = TypeVar("T")
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in any unit of length."""
Condition = tuple[bool, str]
"""Whether it holds, and its text."""


def include_conditions(
    clauses: Sequence[Mapping[str, Any]],
    objects: Mapping[str, Sequence[T]],
    attributes: Mapping[str, Callable[[Sequence[T], str], Sequence[str]]],
    related: Callable[[T, T], set[str]],
) -> Iterator[Condition]:
    """The conditions of `include`, of checked metadata: per clause its count, its attributes, its
    position. `objects`: those found of each class, the most certain first; `attributes`: per key of
    a clause a function for that attribute of objects of a class; `related` names where the first
    lies relative to the second."""
    taken = [list(objects.get(clause["class"], ()))[: clause["count"]] for clause in clauses]
    for clause, mine in zip(clauses, taken, strict=True):
        name, count = clause["class"], clause["count"]
        yield len(mine) >= count, f"expected {count} {name}, found {len(mine)}"
        for key in [key for key in attributes if key in clause]:
            found = list(attributes[key](mine, name)) if mine else []
            text = f"expected {count} {clause[key]} {name}, found {', '.join(found) or 'none'}"
            yield found.count(clause[key]) >= count, text
        if "position" in clause:
            relation, other = clause["position"]
            holds = bool(mine and taken[other]) and all(
                relation in related(a, b) for a in mine for b in taken[other]
            )
            yield holds, f"expected {name} {relation} {clauses[other]['class']}"


def score_conditions(conditions: Iterable[Condition], mode: str) -> float:
    """`strict`: 1.0 where every condition holds and else 0.0; `partial`: the share that holds."""
    held = [holds for holds, _ in conditions]
    return float(all(held)) if mode == "strict" else sum(held) / len(held)


def exclude_conditions(
    clauses: Iterable[Mapping[str, Any]], objects: Mapping[str, Sequence[Any]]
) -> Iterator[Condition]:
    """The conditions of `exclude`."""
    for clause in clauses:
        found = len(objects.get(clause["class"], ()))
        text = f"expected fewer than {clause['count']} {clause['class']}, found {found}"
        yield found < clause["count"], text


def continuous_terms(
    clauses: Sequence[Mapping[str, Any]],
    objects: Mapping[str, Sequence[T]],
    colors: Callable[[Sequence[T], str], Sequence[str]],
    related: Callable[[T, T], set[str]],
) -> Iterator[float]:
    """flow_grpo's continuous reward for GenEval prompts (Liu et al. 2025, arXiv:2505.05470).

        mean over the terms:  1 - |n - found| / n  for the count n of a clause,
        the same for its colour, 1 or 0 for its position

    All objects of a class count, so one too many costs as much as one too few, and a term falls
    below 0 where more than twice the count are found. A clause with a wrong count gets 0 for its
    colour or position, and `exclude` is ignored: it says the same as the count. `colors` gives the
    colour of each of some objects of a class; the other arguments are those of
    `include_conditions`."""
    matched: list[Sequence[T] | None] = []
    for clause in clauses:
        name, count = clause["class"], clause["count"]
        found = list(objects.get(name, ()))
        holds = len(found) == count
        yield _share(count, len(found))
        if not holds and ("color" in clause or "position" in clause):
            yield 0.0
        if holds and "color" in clause:
            right = list(colors(found, name)).count(clause["color"])
            holds = right == count
            yield _share(count, right)
        if holds and "position" in clause:
            relation, other = clause["position"]
            target = matched[other] if other < len(matched) else None
            holds = target is not None and all(
                relation in related(a, b) for a in found for b in target
            )
            yield float(holds)
        matched.append(found if holds else None)


def _share(wanted: int, found: int) -> float:
    return 1 - abs(wanted - found) / wanted


def find_relations(a: Box, b: Box) -> set[str]:
    """Where `a` lies relative to `b`, boxes in pixels.

    The offset between the centres is shortened by a tenth of the summed extents on each axis; a
    direction holds if what is left of it is more than half of the whole offset.
    """
    offset, rest = shorten_offset(a, b)
    if all(abs(part) < 1e-3 for part in rest):
        return set()
    return find_directions(rest, (offset[0] ** 2 + offset[1] ** 2) ** 0.5)


def shorten_offset(a: Box, b: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the centre of `b` to that of `a` on both axes; the same less the margin."""
    offset, rest = [], []
    for axis in (0, 1):
        extents = a[axis + 2] - a[axis] + b[axis + 2] - b[axis]
        whole = (a[axis] + a[axis + 2] - b[axis] - b[axis + 2]) / 2
        left = max(abs(whole) - POSITION_MARGIN * extents, 0.0)
        offset.append(whole)
        rest.append(left if whole > 0 else -left)
    return (offset[0], offset[1]), (rest[0], rest[1])


def find_directions(rest: tuple[float, float], length: float) -> set[str]:
    """The relations whose part of an offset is more than half of `length`."""
    along = (-rest[0], rest[0], -rest[1], rest[1])
    return {name for name, part in zip(RELATIONS, along, strict=True) if part / length > 0.5}


def check_metadata(
    metadata: Mapping[str, Any], attributes: Mapping[str, Sequence[str]], tags: Sequence[str] = TAGS
) -> None:
    """Check GenEval metadata with `tag`, `include` and, optionally, `exclude`; `attributes` are the
    keys of a clause other than `count` and `position`, `class` among them, with their allowed
    values. Raises ConfigError: the tag is not one of `tags`, `include` is missing or empty, or a
    clause has an unknown key or a value that is not allowed."""
    check_choice("tag", metadata.get("tag"), tags)
    include, exclude = metadata.get("include") or [], metadata.get("exclude") or []
    check(bool(include), "include", include, "a list of at least one clause")
    for key, clauses in (("include", include), ("exclude", exclude)):
        check_clauses(key, clauses)
        for n, clause in enumerate(clauses):
            _check_clause(f"{key}[{n}]", clause, attributes, len(include))


def check_clauses(key: str, clauses: Any) -> None:
    """Raise a ConfigError unless a value is a list of clauses, each with a class and a count."""
    check(isinstance(clauses, list), key, clauses, "a list of clauses")
    allowed = 'a clause with a class and a count of 1 or more: {"class": "bird", "count": 1}'
    for n, clause in enumerate(clauses):
        count = clause.get("count") if isinstance(clause, Mapping) else None
        holds = type(count) is int and count >= 1 and isinstance(clause.get("class"), str)
        check(holds, f"{key}[{n}]", clause, allowed)


def _check_clause(
    where: str, clause: Mapping[str, Any], attributes: Mapping[str, Sequence[str]], clauses: int
) -> None:
    for key, value in clause.items():
        check_choice(f"a key of {where}", key, (*attributes, "count", "position"))
        if key in attributes:
            check_choice(f"{where}.{key}", value, attributes[key])
        elif key == "position":
            check_position(f"{where}.position", value, clauses)


def check_position(key: str, value: Any, clauses: int) -> None:
    """Raise a ConfigError unless a value is a relation to one of so many clauses."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    relation, other = value if pair else ("", None)
    holds = relation in RELATIONS and type(other) is int and 0 <= other < clauses
    allowed = f"[relation, index of a clause], with one of {', '.join(RELATIONS)}"
    check(holds, key, value, allowed)
