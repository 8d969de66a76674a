"""Clips of the shapes world: two shapes of different kinds, each moving in one of four directions.

A prompt such as "a red circle moving right and a blue square moving up" asks for a clip of `FRAMES`
frames, in GenEval's schema with a `motion` for each clause. The shape that is named first has the
upper left quarter of the clip and the other one the lower right quarter; each passes the middle of
its quarter by a quarter of a cell a frame, so they never meet. The background is left open.
"""

from __future__ import annotations

import hashlib
import json
from itertools import combinations, product
from typing import Any

import numpy as np
from PIL import Image
from prompts import with_article
from render import render

Row = dict[str, Any]

FRAMES, STEP, MIDDLE = 9, 0.25, ((1, 1), (5, 5))
"""Frames of a clip, cells from one to the next, and the places of the shapes in the middle."""
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
MOVING, PAINTED, GROUNDS = (
    ("circle", "square", "triangle"),
    ("red", "green", "blue", "yellow"),
    ("grey", "tan"),
)
ROWS = {"test": 64, "validation": 24, "train": 400}
"""Rows of the prompt files; of test and validation also the compositions, the others train."""
WORDINGS = ("{}", "a video of {}")


def compositions() -> list[list[Row]]:
    """What can be asked for, whatever the order of the words: the clauses of `include`."""
    kinds = list(product(PAINTED, DIRECTIONS))
    return [
        [_clause(first, *a), _clause(second, *b)]
        for first, second in combinations(MOVING, 2)
        for a, b in product(kinds, kinds)
    ]


def _clause(shape: str, color: str, motion: str) -> Row:
    return {"class": shape, "count": 1, "color": color, "motion": motion}


def split_compositions(split: str) -> list[list[Row]]:
    """The compositions of a split, dealt by the rank of a hash."""
    ranked = sorted(compositions(), key=lambda clauses: _digest(json.dumps(clauses)))
    held, test = ROWS["test"] + ROWS["validation"], ROWS["test"]
    cuts = {"test": (0, test), "validation": (test, held), "train": (held, None)}
    return ranked[slice(*cuts[split])]


def wordings(clauses: list[Row]) -> list[Row]:
    """Rows of a composition with a `prompt`, in either order of its clauses."""
    rows = []
    for include in (clauses, clauses[::-1]):
        said = [
            with_article(f"{each['color']} {each['class']} moving {each['motion']}")
            for each in include
        ]
        made = (words.format(" and ".join(said)) for words in WORDINGS)
        rows += [{"tag": "motion", "include": include, "prompt": prompt} for prompt in made]
    return rows


def prompt_rows(split: str) -> list[Row]:
    """The prompt file of a split, a row of each composition, the same on every machine."""
    worded = [
        min(wordings(clauses), key=lambda row: _digest(row["prompt"]))
        for clauses in split_compositions(split)
    ]
    return [
        {"id": f"shapes-motion-{split}-{n:05d}", **row}
        for n, row in enumerate(worded[: ROWS[split]])
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(f"shapes motion {text}".encode()).hexdigest()


def draw_clip(
    include: list[Row], rng: np.random.Generator, still: bool = False, size: int = 32
) -> list[Image.Image]:
    """The frames of a clip, of `size` pixels a side, on a random background; in a still one both
    shapes stay in the middle of their quarters."""
    background = GROUNDS[int(rng.random() * len(GROUNDS))]
    return [
        render({"background": background, "objects": _place(include, 0 if still else n)}, size)
        for n in range(-(FRAMES // 2), FRAMES // 2 + 1)
    ]


def _place(include: list[Row], n: int) -> list[Row]:
    """The objects n frames after the middle of the clip."""
    found = []
    for clause, (column, row) in zip(include, MIDDLE, strict=True):
        across, down = DIRECTIONS[clause["motion"]]
        place = {"column": column + STEP * n * across, "row": row + STEP * n * down}
        found.append({"class": clause["class"], "color": clause["color"], "size": 2, **place})
    return found
