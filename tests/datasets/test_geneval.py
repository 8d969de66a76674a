"""What the GenEval-style prompts promise: schema, wording, and no overlap with the evaluation."""

import json
from collections import Counter
from pathlib import Path

import pytest

from mmrl.data.prompts import load_prompts
from tests.by_path import load

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "geneval"
geneval = load(FOLDER, "generate")

EVALUATION = [
    {"tag": "counting", "include": [{"class": "bench", "count": 4}]}
    | {"exclude": [{"class": "bench", "count": 5}], "prompt": "a photo of four benchs"},
    {
        "tag": "position",
        "include": [
            {"class": "teddy bear", "count": 1},
            {"class": "dog", "count": 1, "position": ["right of", 0]},
        ],
        "prompt": "a photo of a dog right of a teddy bear",
    },
    {
        "tag": "color_attr",
        "include": [
            {"class": "wine glass", "count": 1, "color": "purple"},
            {"class": "apple", "count": 1, "color": "black"},
        ],
        "prompt": "a photo of a purple wine glass and a black apple",
    },
]


def rows_of(split: str) -> list[dict]:
    lines = (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def generated() -> dict[str, list[dict]]:
    return geneval.generate(EVALUATION)


@pytest.mark.parametrize(("split", "column"), [("train", 0), ("validation", 1)])
def test_the_committed_files_hold_every_tag_and_unique_prompts(split: str, column: int) -> None:
    rows = rows_of(split)
    assert Counter(row["tag"] for row in rows) == {t: n[column] for t, n in geneval.ROWS.items()}
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)
    assert len(load_prompts(str(FOLDER / f"{split}.jsonl"), "text_to_image")) == len(rows)


@pytest.mark.parametrize("row", EVALUATION, ids=lambda row: row["tag"])
def test_rows_have_the_schema_and_wording_of_the_evaluation(row: dict) -> None:
    assert geneval.row_of(row["tag"], row["include"]) == row


def test_excluded_prompts_and_compositions_are_not_generated(generated: dict) -> None:
    rows = [row for split in generated.values() for row in split]
    held_out = {geneval.composition(row) for row in EVALUATION}
    assert not held_out & {geneval.composition(row) for row in rows}
    first = generated["train"][100]
    again = geneval.generate([*EVALUATION, first])
    assert first["prompt"] not in {row["prompt"] for split in again.values() for row in split}
