"""What the text problems promise: solvable, unique, disjoint, scored right, short, reproducible."""

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from mmrl.data.prompts import load_prompts
from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests import by_path

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "text"
REWARD = {"countdown": "countdown", "sudoku": "sudoku"}


load = partial(by_path.load, FOLDER)
splits, countdown, sudoku, arithmetic = map(load, ("splits", "countdown", "sudoku", "arithmetic"))
write = load("write")


def rows_of(name: str, split: str) -> list[dict]:
    text = (FOLDER / f"{name}_{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", write.COMMITTED)
def test_the_committed_files_are_small_distinct_and_load_as_they_are(name: str) -> None:
    for split, count in (("train", 2000), ("validation", 128), ("test", 256)):
        path = FOLDER / f"{name}_{split}.jsonl"
        prompts = load_prompts(str(path), "text")
        assert path.stat().st_size < 300_000 and len(prompts) == count
        assert len({p.text for p in prompts}) == len({p.id for p in prompts}) == count


@pytest.mark.parametrize("name", write.COMMITTED)
def test_worked_solutions_score_full_marks(name: str) -> None:
    rows = [row for split in splits.SPLITS for row in rows_of(name, split)[:100]]
    samples = [Sample(row["prompt"], write.SETS[name].completion(row), row) for row in rows]
    reward = build_reward({"name": REWARD.get(name.partition("_")[0], "math")})
    assert set(reward(samples)) == {1.0}


def test_splits_share_no_numbers_sums_or_families() -> None:
    keys = {"countdown": countdown.key_of, "countdown_small": countdown.key_of}
    keys |= {"arithmetic": arithmetic.key_of, "arithmetic_small": arithmetic.key_of}
    keys |= {"sudoku": lambda row: sudoku.family(row["solution"])}
    keys |= {"sudoku_hard": lambda row: sudoku.family(row["solution"])}
    for split in splits.SPLITS:
        others = [other for other in splits.SPLITS if other != split]
        for name, key in keys.items():
            mine = set(map(key, rows_of(name, split)))
            assert not mine & {key(row) for other in others for row in rows_of(name, other)}


def test_there_are_288_grids_in_12_families_and_every_puzzle_has_one_solution() -> None:
    assert len(sudoku.grids()) == 288 == len(set(sudoku.grids()))
    assert Counter(Counter(map(sudoku.family, sudoku.grids())).values()) == {24: 12}
    assert {name: len(grids) for name, grids in sudoku.split_grids().items()} == {
        "train": 216,
        "validation": 24,
        "test": 48,
    }
    assert sudoku.count_solutions("0" * 16) == 288
    for row in rows_of("sudoku", "test") + rows_of("sudoku_hard", "test"):
        given = zip(row["puzzle"], row["solution"], strict=True)
        assert all(cell in ("0", digit) for cell, digit in given)
        assert sudoku.count_solutions(row["puzzle"]) == 1
    for name, cells in (("sudoku", range(4, 11)), ("sudoku_hard", (11, 12))):
        empty = Counter(row["puzzle"].count("0") for row in rows_of(name, "train"))
        assert set(empty) == set(cells) and min(empty.values()) > 200


@pytest.mark.slow
def test_the_command_writes_the_committed_files_and_pairs_of_training_problems(
    tmp_path: Path,
) -> None:
    sets = "sets=countdown_small,sudoku:2,arithmetic_small:3"
    words = [f"out={tmp_path}", "pairs=300", "seed=3", sets, "careless=50"]
    subprocess.run([sys.executable, str(FOLDER / "write.py"), *words], check=True)
    for path in sorted(tmp_path.glob("*.jsonl")):
        assert path.read_bytes() == (FOLDER / path.name).read_bytes(), path.name
    pairs = read_table(tmp_path / "train_pairs.parquet").to_pylist()
    assert [pair["set"] for pair in pairs[:6]] == [
        "countdown_small",
        *["sudoku"] * 2,
        *["arithmetic_small"] * 3,
    ]
    assert Counter(pair["set"] for pair in pairs)["arithmetic_small"] == 150
    held_out = {r["prompt"] for name in write.COMMITTED for r in rows_of(name, "test")}
    assert not held_out & {pair["prompt"] for pair in pairs}
