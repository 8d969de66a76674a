"""What is asked about an image, from the metadata of its prompt."""

import json
import re
from pathlib import Path
from typing import Any

from mmrl.rewards.judging.scene_questions import COLORS, KINDS, build_questions

SHAPES = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
ALL = tuple(KINDS)
RING = {"class": "ring", "count": 1, "color": "red"}
LEFT = {"class": "cross", "count": 1, "position": ["left of", 0]}


def rows(name: str) -> list[dict[str, Any]]:
    lines = (SHAPES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def said(include: list[dict[str, Any]], *kinds: str) -> list[tuple[str, str]]:
    found = build_questions({"include": include}, kinds or ALL)
    return [(question.text, question.facts["answer"]) for question in found]


def test_a_clause_is_asked_about_by_count_colour_side_and_existence() -> None:
    assert said([RING], "count", "color") == [
        ("how many red rings are there?", "1"),
        ("what color is the ring?", "red"),
    ]
    assert said([{"class": "bench", "count": 3}]) == [("how many benches are there?", "3")]
    assert said([RING, LEFT], "relation") == [
        ("on which side of the red ring is the cross: left, right, above or below?", "left")
    ]
    [(yes, _), (no, answer)] = said([RING], "existence")
    other = re.fullmatch(r"is there an? (\w+) ring\?", no)
    assert yes == "is there a red ring?" and answer == "no"
    assert other is not None and other[1] in COLORS and other[1] != "red"


def test_what_does_not_say_which_thing_is_meant_is_not_asked() -> None:
    both = [RING, {**RING, "color": "blue", "count": 2}]
    assert said(both, "color") == []
    assert [text for text, _ in said(both, "count")] == [
        "how many red rings are there?",
        "how many blue rings are there?",
    ]
    bare = [{"class": "ring", "count": 1}, RING]
    assert [text for text, _ in said(bare, "count")] == ["how many red rings are there?"]
    everything = [{**RING, "color": color} for color in COLORS[1:]]
    assert {text for text, answer in said(everything, "existence") if answer == "no"} == {
        f"is there a {COLORS[0]} ring?"
    }


def frame(question: str) -> str:
    """A question without its colours and shapes."""
    return re.sub(
        rf"\b({'|'.join(COLORS)})\b|\b(an?|circle|square|triangle|diamond|cross|ring)(e?s)?\b",
        "",
        question,
    )


def test_questions_about_coloured_shapes_are_worded_as_the_small_models_were_taught() -> None:
    taught = {frame(row["question"]) for row in rows("questions_train") if row["form"] == "short"}
    coloured = [row for row in rows("train") if row["tag"] in ("colors", "color_attr")]
    placed = [
        {"include": [first, {**second, "position": ["above", 0]}]}
        for first, second in (row["include"] for row in coloured if row["tag"] == "color_attr")
    ]
    kinds = ("count", "relation", "existence")
    asked = {frame(q.text) for row in [*coloured, *placed] for q in build_questions(row, kinds)}
    assert len(asked) == 3 and asked <= taught
