"""The CLIP that ships with the shapes world, on images of compositions it was not trained on."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
CHECKPOINT = FOLDER / "checkpoints" / "clip"


load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")
CHOICES: dict[str, tuple] = {
    "class": render.SHAPES,
    "color": tuple(render.COLORS),
    "size": tuple(render.SIZES),
    "background": tuple(render.BACKGROUNDS),
    "count": (2, 3, 4),
}


def wrong_in_one_attribute(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The row with one attribute of one object changed to a value the row does not hold."""
    for place, clause in enumerate(row["include"]):
        changes = [
            {key: value}
            for key, choices in CHOICES.items()
            if clause.get(key) in choices
            for value in choices
            if all(other.get(key) != value for other in row["include"])
        ]
        if "position" in clause:
            relation, other = clause["position"]
            changes.append({"position": [prompts.INVERSE[relation], other]})
        for change in changes:
            include = [dict(c) for c in row["include"]]
            include[place].update(change)
            yield {**row, "include": include}


def worded_like(row: dict[str, Any], other: dict[str, Any]) -> str:
    """The prompt of `other` in the wording that `row` has."""
    mine = [w["prompt"] for w in prompts.wordings(row)].index(row["prompt"])
    return prompts.wordings(other)[mine]["prompt"]


def share_ranked_right(split: str) -> dict[str, float]:
    """Share of images whose own prompt outscores one with one attribute wrong, per tag."""
    rng = np.random.default_rng(0)
    reward = build_reward({"name": "clip", "model": str(CHECKPOINT), "device": "cpu"})
    tags, right, wrong = [], [], []
    for row in prompts.prompt_rows(split):
        image = render.render(prompts.scene_for(row, rng))
        candidates = list(wrong_in_one_attribute(row))
        other = candidates[int(rng.integers(len(candidates)))]
        right.append(Sample(row["prompt"], image))
        wrong.append(Sample(worded_like(row, other), image))
        tags.append(row["tag"])
    hits = defaultdict(list)
    for tag, a, b in zip(tags, reward(right), reward(wrong), strict=True):
        hits[tag].append(a > b)  # type: ignore[operator]
        hits["all"].append(a > b)  # type: ignore[operator]
    return {tag: float(np.mean(values)) for tag, values in hits.items()}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_true_prompt_outscores_one_with_one_attribute_wrong(split: str) -> None:
    shares = share_ranked_right(split)
    assert set(shares) == {*prompts.TAGS, "all"}
    assert shares["all"] >= 0.9, shares
    assert min(shares.values()) >= 0.75, shares
