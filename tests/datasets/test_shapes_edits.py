"""Edits of the shapes world: true by the pixels, disjoint, readable and scored."""

import json
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pytest
from PIL import Image

from mmrl.data.prompts import load_prompts
from mmrl.rewards import build_reward
from mmrl.types import Prompt, Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
SPLITS = ("train", "validation", "test")
load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")
questions, edits = load("questions"), load("edits")
_, write = load("image_pairs"), load("write_edits")
REWARD = build_reward({"name": "shapes_edit"})
PARTIAL = build_reward({"name": "shapes_edit", "mode": "partial"})


@cache
def prompts_of(split: str) -> list[Prompt]:
    return load_prompts(str(FOLDER / f"edits_{split}.jsonl"), "image_edit")


@cache
def drawn(split: str) -> list[dict]:
    return edits.edit_rows(split, edits.ROWS[split])


def sample(row: dict, edited: Image.Image) -> Sample:
    facts = {key: row[key] for key in ("tag", "include", "exclude", "edited") if key in row}
    return Sample(row["prompt"], edited, facts, [render.render(row["source"])])


@pytest.mark.parametrize("split", SPLITS)
def test_the_committed_files_are_what_the_generator_writes(split: str) -> None:
    text = (FOLDER / f"edits_{split}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    hidden = ("source", "target", "image")
    shown = [{k: v for k, v in row.items() if k not in hidden} for row in rows]
    assert shown == [{k: v for k, v in row.items() if k not in hidden} for row in drawn(split)]
    for row, prompt in list(zip(drawn(split), prompts_of(split), strict=True))[:20]:
        assert prompt.images is not None and prompt.text == row["prompt"]
        expected = render.render(row["source"])
        assert prompt.images[0].convert("RGB").tobytes() == expected.tobytes()


def test_splits_are_disjoint_in_what_is_changed_into_what() -> None:
    for tag in edits.TAGS:
        split = edits.split_compositions(tag)
        dealt = [pair for pairs in split.values() for pair in pairs]
        assert Counter(dealt) == Counter(edits.compositions(tag))
        assert all(split.values())
    tags = Counter(row["tag"] for row in drawn("test"))
    assert set(tags) == set(edits.TAGS) and len(set(tags.values())) == 1


def test_the_scene_that_is_asked_for_scores_one_and_the_source_does_not() -> None:
    rows = drawn("test")
    right = REWARD([sample(row, render.render(row["target"])) for row in rows])
    assert right == [1.0] * len(rows)
    unchanged = [sample(row, render.render(row["source"])) for row in rows]
    assert REWARD(unchanged) == [0.0] * len(rows)
    shares = PARTIAL(unchanged)
    assert all(0 < share < 1 for share in shares)  # what stays is there


@pytest.mark.parametrize("change", ["background", "place"])
def test_what_the_instruction_leaves_alone_must_stay(change: str) -> None:
    recolored = (row for row in drawn("test") if row["tag"] == "recolor")
    row = next(row for row in recolored if len(row["target"]["objects"]) == 1)
    scene = json.loads(json.dumps(row["target"]))
    if change == "background":
        scene["background"] = "tan" if scene["background"] != "tan" else "teal"
    else:
        item = scene["objects"][0]
        item["column"] += 3 if item["column"] < 3 else -3
    edited = sample(row, render.render(scene))
    assert REWARD([edited]) == [0.0]
