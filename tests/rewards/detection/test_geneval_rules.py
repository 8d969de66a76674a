"""GenEval's rules against its published algorithm, written out here a second time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.rewards.compositional import select_objects
from mmrl.rewards.detection.geneval_rules import (
    RELATIONS,
    exclude_conditions,
    find_relations,
    include_conditions,
)
from mmrl.rewards.detection.instance_segmenter import Found

NAMES = ("cat", "dog")


def published_position(a: Sequence[float], b: Sequence[float]) -> set[str]:
    """Offset of the centres less 0.1 of the summed sizes, over the whole offset, against 0.5."""
    corners = np.array([a, b]).reshape(2, 2, 2)
    offset = corners[0].mean(0) - corners[1].mean(0)
    sizes = np.abs(corners[0][1] - corners[0][0]) + np.abs(corners[1][1] - corners[1][0])
    rest = np.maximum(np.abs(offset) - 0.1 * sizes, 0) * np.sign(offset)
    if (np.abs(rest) < 1e-3).all():
        return set()
    x, y = rest / np.linalg.norm(offset)
    named = zip(("left of", "right of", "above", "below"), (x < -0.5, x > 0.5, y < -0.5, y > 0.5))  # noqa: B905
    return {name for name, holds in named if holds}


def published_verdict(
    objects: Mapping[str, list[Found]], colors: Mapping[Found, str], metadata: Mapping[str, Any]
) -> bool:
    """Clause after clause, with the group of the clause that a position refers to."""
    correct, groups = True, []
    for clause in metadata["include"]:
        found = objects.get(clause["class"], [])[: clause["count"]]
        matched = len(found) >= clause["count"]
        if matched and "color" in clause:
            matched = [colors[item] for item in found].count(clause["color"]) >= clause["count"]
        if matched and "position" in clause:
            relation, target = clause["position"]
            matched = groups[target] is not None and all(
                relation in published_position(a.box, b.box) for a in found for b in groups[target]
            )
        correct = correct and matched
        groups.append(found if matched else None)
    for clause in metadata.get("exclude", []):
        correct = correct and len(objects.get(clause["class"], [])) < clause["count"]
    return correct


def boxes(count: int, rng: np.random.Generator) -> list[Found]:
    """Objects of both classes at random, the most certain first."""
    found = []
    for score in sorted(rng.uniform(0, 1, count), reverse=True):
        left, top, width, height = rng.uniform((0, 0, 5, 5), (90, 90, 60, 60))
        box = (left, top, left + width, top + height)
        found.append(Found(NAMES[rng.integers(2)], box, float(score)))
    return found


def request(rng: np.random.Generator) -> dict[str, Any]:
    """Metadata of any tag."""
    tag = rng.choice(["counting", "color_attr", "position", "two_object"])
    clauses: list[dict[str, Any]] = [{"class": n, "count": int(rng.integers(1, 3))} for n in NAMES]
    if tag == "counting":
        count = clauses[0]["count"]
        return {
            "tag": tag,
            "include": clauses[:1],
            "exclude": [{"class": "cat", "count": count + 1}],
        }
    for clause in clauses:
        if tag == "color_attr":
            clause["color"] = str(rng.choice(["red", "blue"]))
    if tag == "position":
        clauses[1]["position"] = [str(rng.choice(RELATIONS)), 0]
    return {"tag": str(tag), "include": clauses}


def test_the_strict_verdict_is_the_published_one() -> None:
    rng = np.random.default_rng(0)
    passed = 0
    for _ in range(600):
        found, metadata = boxes(int(rng.integers(1, 6)), rng), request(rng)
        colors = {item: str(rng.choice(["red", "blue"], p=[0.7, 0.3])) for item in found}
        objects = select_objects(found, 0.1)
        conditions = [
            *include_conditions(
                metadata["include"],
                objects,
                {"color": lambda taken, _, colors=colors: [colors[item] for item in taken]},
                lambda a, b: find_relations(a.box, b.box),
            ),
            *exclude_conditions(metadata.get("exclude", ()), objects),
        ]
        verdict = all(holds for holds, _ in conditions)
        assert verdict == published_verdict(objects, colors, metadata)
        passed += verdict
    assert 60 < passed < 540, "both verdicts must occur"


def test_positions_are_the_published_ones() -> None:
    rng = np.random.default_rng(1)
    seen: set[str] = set()
    for _ in range(600):
        a, b = boxes(2, rng)
        assert find_relations(a.box, b.box) == published_position(a.box, b.box)
        seen |= find_relations(a.box, b.box)
    assert seen == set(RELATIONS)
    box = (10.0, 10.0, 30.0, 30.0)
    assert find_relations(box, box) == set()
    # 5 pixels to the left, of which the margin of 0.1 * 40 leaves 1, and 1 / 5 is below one half.
    assert find_relations(box, (15.0, 10.0, 35.0, 30.0)) == set()
    assert find_relations(box, (25.0, 10.0, 45.0, 30.0)) == {"left of"}


def test_the_objects_that_count_are_the_best_sixteen_above_the_threshold() -> None:
    rng = np.random.default_rng(2)
    for count in (0, 3, 60):
        found = boxes(count, rng)
        mine = select_objects(found, 0.3)
        for name in NAMES:
            left = [f for f in found if f.name == name and f.score > 0.3]
            assert mine.get(name, []) == left[:16]
