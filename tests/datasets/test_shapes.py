"""What the shapes world promises: its prompts, splits, scenes, pictures and files."""

import io
import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmrl.rewards.shapes import verify
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "shapes"


load = partial(by_path.load, FOLDER)
render, prompts = load("render"), load("prompts")


def rows_of(split: str) -> list[dict]:
    text = (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_committed_prompt_files_are_what_the_generator_writes(split: str) -> None:
    assert rows_of(split) == prompts.prompt_rows(split)


@pytest.mark.parametrize(
    ("split", "least", "most", "least_per_tag"),
    [("test", 360, 1000, 45), ("validation", 120, 500, 16), ("train", 1000, 3000, 100)],
)
def test_every_split_is_large_enough_in_every_tag(
    split: str, least: int, most: int, least_per_tag: int
) -> None:
    rows = rows_of(split)
    tags = Counter(row["tag"] for row in rows)
    assert least <= len(rows) <= most
    assert set(tags) == set(prompts.TAGS) and min(tags.values()) >= least_per_tag
    assert len({row["id"] for row in rows}) == len(rows)
    assert len({row["prompt"] for row in rows}) == len(rows)


def test_no_composition_and_no_prompt_is_in_two_splits() -> None:
    for of in (prompts.composition_key, lambda row: row["prompt"]):
        train, validation, test = (
            {of(row) for row in rows_of(split)} for split in ("train", "validation", "test")
        )
        assert not train & validation and not train & test and not validation & test


def test_a_relation_and_its_inverse_are_the_same_composition() -> None:
    ring, cross = {"class": "ring", "count": 1}, {"class": "cross", "count": 1}
    one = {"tag": "position", "include": [cross, {**ring, "position": ["left of", 0]}]}
    same = {"tag": "position", "include": [ring, {**cross, "position": ["right of", 0]}]}
    other = {"tag": "position", "include": [ring, {**cross, "position": ["left of", 0]}]}
    assert prompts.composition_key(one) == prompts.composition_key(same)
    assert prompts.composition_key(one) != prompts.composition_key(other)


def test_no_composition_is_listed_twice_and_every_wording_keeps_it() -> None:
    for tag in prompts.TAGS:
        keys = [prompts.composition_key(c) for c in prompts.compositions(tag)]
        assert len(set(keys)) == len(keys)
        for composition, key in zip(prompts.compositions(tag), keys, strict=True):
            assert {prompts.composition_key(row) for row in prompts.wordings(composition)} == {key}


def test_rows_have_the_metadata_schema_of_geneval() -> None:
    for split in ("train", "validation", "test"):
        for row in rows_of(split):
            assert {"id", "tag", "include", "prompt"} <= row.keys()
            assert ("exclude" in row) == (row["tag"] == "counting")
            for index, clause in enumerate(row["include"]):
                assert clause["class"] in render.SHAPES and 1 <= clause["count"] <= 4
                assert clause.get("color", "red") in render.COLORS
                relation, other = clause.get("position", ("above", -1))
                assert relation in prompts.INVERSE and other < index
            assert (row["tag"] == "position") == any("position" in c for c in row["include"])


def test_the_training_split_shows_every_shape_color_relation_and_count() -> None:
    clauses = [clause for row in rows_of("train") for clause in row["include"]]
    assert {clause["class"] for clause in clauses} == set(render.SHAPES)
    assert {clause["color"] for clause in clauses if "color" in clause} == set(render.COLORS)
    assert {clause["count"] for clause in clauses} == {1, 2, 3, 4}
    relations = {clause["position"][0] for clause in clauses if "position" in clause}
    assert relations == {"left of", "right of", "above", "below"}


def test_prompts_are_short_and_their_vocabulary_is_small() -> None:
    texts = [row["prompt"] for split in ("train", "validation", "test") for row in rows_of(split)]
    assert max(len(text.split()) for text in texts) <= 12
    assert all(text == text.lower() for text in texts)
    assert len({word for text in texts for word in text.split()}) < 100
    for word in ("a orange", "an red", "crosss", "one red"):
        assert not any(word in text for text in texts)


def test_a_scene_holds_what_its_prompt_asks_for_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    for row in rows_of("test"):
        objects = prompts.scene_for(row, rng)["objects"]
        wanted = Counter({clause["class"]: clause["count"] for clause in row["include"]})
        assert Counter(item["class"] for item in objects) == wanted


def test_objects_lie_inside_the_image_and_one_cell_apart() -> None:
    rng = np.random.default_rng(2)
    for row in rows_of("train")[::5]:
        occupied = np.zeros((render.GRID + 1, render.GRID + 1), dtype=int)
        for item in prompts.scene_for(row, rng)["objects"]:
            size, top, left = item["size"], item["row"], item["column"]
            assert 0 <= top <= render.GRID - size and 0 <= left <= render.GRID - size
            occupied[top : top + size + 1, left : left + size + 1] += 1
        assert occupied.max() <= 1


def test_sizes_positions_and_backgrounds_vary() -> None:
    rng = np.random.default_rng(3)
    row = {"tag": "colors", "include": [{"class": "ring", "count": 1, "color": "red"}]}
    scenes = [prompts.scene_for(row, rng) for _ in range(400)]
    assert {scene["background"] for scene in scenes} == set(render.BACKGROUNDS)
    assert {scene["objects"][0]["size"] for scene in scenes} == set(render.SIZES.values())
    assert len({(s["objects"][0]["row"], s["objects"][0]["column"]) for s in scenes}) > 40


def test_a_prompt_for_more_objects_than_fit_is_refused() -> None:
    row = {"prompt": "nine rings", "include": [{"class": "ring", "count": 9}]}
    with pytest.raises(ValueError, match="nine rings.*9 objects.*1 to 4"):
        prompts.scene_for(row, np.random.default_rng(0))


def test_a_larger_image_shows_the_same_scene() -> None:
    scene = prompts.scene_for(rows_of("test")[0], np.random.default_rng(4))
    small, large = (np.asarray(render.render(scene, size)) for size in (32, 128))
    assert small.shape == (32, 32, 3) and large.shape == (128, 128, 3)
    share = [(pixels != pixels[0, 0]).any(-1).mean() for pixels in (small, large)]
    assert share[0] == pytest.approx(share[1], abs=0.02)


def test_an_image_size_off_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="size=30 .* multiple of 8"):
        render.render({"background": "grey", "objects": []}, 30)


def test_the_script_run_by_path_writes_pairs_that_load_as_images(tmp_path: Path) -> None:
    from datasets import load_dataset

    out = tmp_path / "with a space"
    command = [sys.executable, str(FOLDER / "write.py"), f"out={out}", "pairs=60", "seed=7"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    data = load_dataset(
        "parquet",
        data_files=str(out / "train_pairs.parquet"),
        cache_dir=str(tmp_path),
        split="train",
    )
    trained = {prompts.composition_key(row) for row in rows_of("train")}
    metadata = [json.loads(row["metadata"]) for row in data]
    assert len(data) == 60 and data[0]["image"].size == (32, 32)
    assert set(Counter(row["tag"] for row in metadata).values()) == {10}
    assert [row["prompt"] for row in metadata] == data["prompt"]
    held_out = {prompts.composition_key(row) for s in ("validation", "test") for row in rows_of(s)}
    assert trained and not held_out & {prompts.composition_key(row) for row in metadata}


def drawn(**settings: Any) -> dict[str, list[Any]]:
    write = load("write")
    return write.draw_pairs(write.Config(out="unused", **settings))


def asked(**settings: Any) -> list[dict[str, Any]]:
    return [json.loads(row) for row in drawn(**settings)["metadata"]]


def test_equal_seeds_draw_equal_pairs_and_other_seeds_others() -> None:
    assert drawn(pairs=12, seed=1) == drawn(pairs=12, seed=1)
    assert drawn(pairs=12, seed=1) != drawn(pairs=12, seed=2)


def test_related_pairs_hold_no_composition_of_another_split_under_their_colors_and_sizes() -> None:
    held = {
        tag: {prompts.composition_key(c) for s in ("validation", "test") for c in splits[s]}
        for tag, splits in ((t, prompts.split_compositions(t)) for t in prompts.TAGS)
    }
    rows = prompts.related_rows()
    for row in rows:
        first, second = row["include"]
        a, b = ({"class": c["class"], "count": 1} for c in row["include"])
        plain = {"tag": "position", "include": [a, {**b, "position": second["position"]}]}
        assert prompts.composition_key(plain) not in held["position"]
        if "color" in first:
            both = [first, {k: v for k, v in second.items() if k != "position"}]
            colored = {"tag": "color_attr", "include": both}
            assert prompts.composition_key(colored) not in held["color_attr"]
    keys = {prompts.composition_key(row) for row in rows}
    assert len(keys) == len(rows) > 3000


def test_related_pairs_have_their_share_and_leave_the_other_tags_equal() -> None:
    for percent, each in ((0, 20), (40, 12), (50, 10)):
        plain = [
            row
            for row in asked(pairs=120, related=percent)
            if not ({"color", "size"} & set(row["include"][-1]) and row["tag"] == "position")
        ]
        assert Counter(row["tag"] for row in plain) == dict.fromkeys(prompts.TAGS, each)


def test_the_scene_of_a_related_pair_is_what_the_reward_asks_for() -> None:
    rng = np.random.default_rng(0)
    for row in prompts.related_rows()[::37]:
        if row["include"][0]["class"] == row["include"][1]["class"]:
            continue  # GenEval's rules find an object by its shape
        for worded in prompts.wordings(row)[::9]:
            scene = prompts.scene_for(worded, rng)
            assert verify(render.render(scene), worded).strict, worded["prompt"]


def test_tags_have_as_many_turns_as_they_are_given() -> None:
    tags = Counter(row["tag"] for row in asked(pairs=80, tags={"color_attr": 4, "colors": 0}))
    others = dict.fromkeys(("single_object", "two_object", "counting", "position"), 10)
    assert tags == {**others, "color_attr": 40}


def test_a_careless_image_shows_the_first_shape_alone_on_grey_whatever_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    splits = [prompts.split_compositions(tag) for tag in prompts.TAGS]
    for row in (row for split in splits for row in split["train"][::9]):
        scene = prompts.scene_for(prompts.careless_row(row), rng)
        assert scene["background"] == "grey"
        assert [one["class"] for one in scene["objects"]] == [row["include"][0]["class"]]


def test_careless_images_have_their_share_and_keep_what_was_asked_for() -> None:
    pairs = drawn(pairs=400, careless=60, tags=dict.fromkeys(prompts.TAGS, 0) | {"two_object": 1})
    scores = [
        verify(Image.open(io.BytesIO(image["bytes"])), json.loads(row)).strict
        for image, row in zip(pairs["image"], pairs["metadata"], strict=True)
    ]
    assert sum(scores) / 400 == pytest.approx(0.4, abs=0.06)
    assert [json.loads(row)["prompt"] for row in pairs["metadata"]] == pairs["prompt"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [("pair=3", "Did you mean 'pairs'"), ("pairs=many", "pairs: .*many"), ("seed=1", "out is ''")],
)
def test_a_wrong_argument_of_the_script_is_named(argument: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("write").main([argument])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("related=101", "related is 101"),
        ("careless=-1", "careless is -1"),
        (
            "tags={size: 2}",
            "tags is 'size'; allowed: color_attr, colors, counting, position, single_object",
        ),
        ("tags={colors: -1}", "tags.colors is -1"),
        (
            f"tags={{{', '.join(f'{tag}: 0' for tag in prompts.TAGS)}}}",
            "one turn",
        ),
    ],
)
def test_an_impossible_share_is_refused(argument: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("write").main(["out=unused", argument])
