"""GenEval's rules on the objects found in an image (Ghosh et al. 2023, arXiv:2310.11513).

A clause of `include` takes its best `count` objects of the class and needs no fewer, an `exclude`
clause fails once its count is reached, attributes are judged on the objects taken, positions by the
geometry of boxes. The rewards `shapes` and `compositional` have different detectors, which find the
objects and their attributes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

TAGS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
RELATIONS = ("left of", "right of", "above", "below")
_COLORS = "red orange yellow green blue purple pink brown black white"
COLORS = tuple(_COLORS.split())
"""GenEval's colours, in the order of its classifier."""
POSITION_MARGIN = 0.1

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
    """The conditions of `include`: per clause its count, its attributes, its position.

    Args:
        clauses: of checked metadata.
        objects: those found of each class, the most certain first.
        attributes: per key of a clause a function for that attribute of objects of a class.
        related: names where the first lies relative to the second.
    """
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
    colour or position, and `exclude` is ignored: it says the same as the count.

    Args:
        clauses: `include` of checked metadata.
        objects: those found of each class.
        colors: the colour of each of some objects of a class.
        related: names where the first lies relative to the second.
    """
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


def check_clauses(key: str, clauses: Any) -> None:
    """Raise a ValueError unless a value is a list of clauses, each with a class and a count."""
    if not isinstance(clauses, list):
        raise ValueError(
            f"{key} is {clauses!r}; it must be a list of clauses such as"
            ' {"class": "bird", "count": 1}'
        )
    for n, clause in enumerate(clauses):
        count = clause.get("count") if isinstance(clause, Mapping) else None
        named = isinstance(clause, Mapping) and isinstance(clause.get("class"), str)
        if not named or type(count) is not int or count < 1:
            raise ValueError(
                f"{key}[{n}] is {clause!r}; it must have a class and a count of at least 1"
            )


def check_position(clause: Mapping[str, Any], clauses: int) -> None:
    """Raise a ValueError unless the `position` of a clause, if any, refers to one of `clauses`."""
    match clause.get("position", (RELATIONS[0], 0)):
        case (relation, other) if relation in RELATIONS and type(other) is int:
            if 0 <= other < clauses:
                return
    raise ValueError(
        f"position={clause['position']!r} must be [relation, index of an include clause] with a"
        f" relation out of {', '.join(RELATIONS)}."
    )


def check_metadata(
    metadata: Mapping[str, Any],
    attributes: Mapping[str, Sequence[str] | None],
    tags: Sequence[str] = TAGS,
) -> None:
    """Check GenEval metadata.

    Args:
        metadata: with `tag`, `include` and, optionally, `exclude`.
        attributes: keys of a clause other than `count` and `position`, with their allowed values
            (`class` is one of them); None allows every text.
        tags: allowed.

    Raises:
        ValueError: If the tag is unknown, `include` is missing or empty, or a clause has an
            unknown key or a value that is not allowed.
    """
    if metadata.get("tag") not in tags:
        raise ValueError(f"Unknown tag {metadata.get('tag')!r}; allowed are {', '.join(tags)}.")
    include, exclude = metadata.get("include"), metadata.get("exclude") or []
    if not include:
        raise ValueError(f"include={include!r} must be a list of at least one clause.")
    check_clauses("include", include)
    check_clauses("exclude", exclude)
    for clause in (*include, *exclude):
        _check_clause(clause, len(include), attributes)


def _check_clause(
    clause: Any, clauses: int, attributes: Mapping[str, Sequence[str] | None]
) -> None:
    keys = (*attributes, "count", "position")
    for name, value in clause.items():
        if name not in keys:
            raise ValueError(
                f"Unknown key {name!r} in clause {clause!r}; allowed are {', '.join(keys)}."
            )
        if name in attributes:
            _check_attribute(name, value, attributes[name])
    check_position(clause, clauses)


def _check_attribute(name: str, value: Any, allowed: Sequence[str] | None) -> None:
    if allowed is None and not (isinstance(value, str) and value.strip()):
        raise ValueError(f"{name}={value!r} must be a text that is not empty.")
    if allowed is not None and value not in allowed:
        raise ValueError(f"{name}={value!r} is not known here; allowed are {', '.join(allowed)}.")
