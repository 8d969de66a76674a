"""What the shapes world promises: its prompts, splits, scenes, pictures and files."""

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

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


def test_no_composition_and_no_prompt_is_in_two_splits() -> None:
    for of in (prompts.composition_key, lambda row: row["prompt"]):
        train, validation, test = (
            {of(row) for row in rows_of(split)} for split in ("train", "validation", "test")
        )
        assert not train & validation and not train & test and not validation & test


def test_a_scene_holds_what_its_prompt_asks_for_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    for row in rows_of("test"):
        objects = prompts.scene_for(row, rng)["objects"]
        wanted = Counter({clause["class"]: clause["count"] for clause in row["include"]})
        assert Counter(item["class"] for item in objects) == wanted


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
