"""Questions about an image from the metadata of the prompt it was made for, in GenEval's schema.

| kind | asked of a clause of `include` | answer |
|---|---|---|
| count | how many red rings are there? | its count |
| color | what color is the ring? | its colour |
| relation | on which side of the ring is the blue cross: left, right, above or below? | the side |
| existence | is there a red ring? is there a green ring? | yes, no |

The wording is that of `datasets/shapes/questions.py`. A constant answer does not pay off for any
kind: existence is asked only for clauses with a colour, together with a colour that the prompt does
not name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from mmrl.randomness import stable_seed
from mmrl.rewards.detection.geneval_rules import check_clauses, check_position

COLORS = ("red", "green", "blue", "yellow", "purple", "orange", "white", "black")
"""Of the shapes world, which are GenEval's but for pink and brown."""
SIDES = {"left of": "left", "right of": "right", "above": "above", "below": "below"}

Clause = Mapping[str, Any]


class Question(NamedTuple):
    """A question, and the facts by which the `answer` reward judges what is said."""

    text: str
    facts: dict[str, Any]


def build_questions(metadata: Mapping[str, Any], kinds: tuple[str, ...]) -> list[Question]:
    """The questions of some kinds about every clause of `include`; equal metadata, equal questions.
    Raises ValueError: metadata with `include` that is not of GenEval's schema."""
    clauses = _clauses(metadata)
    return [
        question
        for clause in clauses
        for kind, asked in KINDS.items()
        if kind in kinds
        for question in asked(clause, clauses)
    ]


def _count(clause: Clause, clauses: list[Clause]) -> Iterator[Question]:
    if "color" in clause or _alone(clause, clauses):
        things = _named({**clause, "class": plural(clause["class"])})
        facts = {"answer": str(clause["count"]), "precision": 0}
        yield Question(f"how many {things} are there?", facts)


def _color(clause: Clause, clauses: list[Clause]) -> Iterator[Question]:
    if "color" in clause and _alone(clause, clauses):
        one = clause["count"] == 1
        thing = f"is the {clause['class']}" if one else f"are the {plural(clause['class'])}"
        yield Question(f"what color {thing}?", {"answer": clause["color"]})


def _relation(clause: Clause, clauses: list[Clause]) -> Iterator[Question]:
    if "position" in clause:
        relation, place = clause["position"]
        text = f"on which side of the {_named(clauses[place])} is the {_named(clause)}"
        side = SIDES[relation]
        facts = {"answer": side, "answers": [relation, f"on the {side}", f"to the {side}"]}
        yield Question(f"{text}: left, right, above or below?", facts)


def _existence(clause: Clause, clauses: list[Clause]) -> Iterator[Question]:
    if "color" not in clause:
        return
    named = {other.get("color") for other in clauses if other["class"] == clause["class"]}
    others = [color for color in COLORS if color not in named]
    # equal for all images of a prompt, so that they are asked alike
    other = others[stable_seed(clause["class"], clause["color"]) % len(others)]
    for color, answer in ((clause["color"], "yes"), (other, "no")):
        article = "an" if color[0] in "aeiou" else "a"
        thing = _named({**clause, "color": color})
        yield Question(f"is there {article} {thing}?", {"answer": answer})


KINDS: dict[str, Callable[[Clause, list[Clause]], Iterator[Question]]] = {
    "count": _count,
    "color": _color,
    "relation": _relation,
    "existence": _existence,
}


def plural(noun: str) -> str:
    """The word for several of a thing."""
    return f"{noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def _named(clause: Clause) -> str:
    return f"{clause.get('color', '')} {clause['class']}".strip()


def _alone(clause: Clause, clauses: list[Clause]) -> bool:
    """Whether no other clause is about the same class, so its bare name says enough."""
    return sum(other["class"] == clause["class"] for other in clauses) == 1


def _clauses(metadata: Mapping[str, Any]) -> list[Clause]:
    include = metadata.get("include") or []
    check_clauses("include", include)
    for clause in include:
        for key in {"class", "color"} & clause.keys():
            if not isinstance(clause[key], str) or not clause[key]:
                raise ValueError(f"{key}={clause[key]!r} in {clause!r} must be a word.")
        if "position" in clause:
            check_position("position", clause["position"], len(include))
    return include
