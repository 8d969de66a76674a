"""flow_grpo's continuous reward for GenEval prompts (Liu et al. 2025, arXiv:2505.05470).

    mean over the terms of the clauses:  1 - |n - found| / n  for the count n of a clause,
    the same for its colour, 1 or 0 for its position

All objects of a class count, so one too many costs as much as one too few, and a term falls below 0
where more than twice the count are found. A clause with a wrong count gets 0 for its colour or
position, and `exclude` is ignored: of a counting prompt it says the same as the count.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def continuous_terms(
    clauses: Sequence[Mapping[str, Any]],
    objects: Mapping[str, Sequence[T]],
    colors: Callable[[Sequence[T], str], Sequence[str]],
    related: Callable[[T, T], set[str]],
) -> Iterator[float]:
    """The terms of all clauses.

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
