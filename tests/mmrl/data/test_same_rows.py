"""The same rows are the same prompts and examples, whatever file or data set they come from."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from mmrl.config import ConfigError
from mmrl.data.prompts import load_prompts
from mmrl.data.rows import open_rows, read_row, read_rows
from mmrl.objectives.options import SourceConfig
from mmrl.objectives.text_pairs import read_pairs

Rows = Sequence[Mapping[str, Any]]


def parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def turns(*contents: Any) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": content}
        for n, content in enumerate(contents)
    ]


TABLES: dict[str, list[dict[str, Any]]] = {
    "answers": [
        {"id": str(n), "prompt": f"{n}?", "answer": answer, "choices": choices}
        for n, (answer, choices) in enumerate(
            [("0204", None), ("None", ["NA", "null", "None", "007"]), ("NA", None)]
            + [("null", ["1", "01", "1.0"]), ("1e5", None), ("[3, 5)", None), ("[3, 5]", None)]
            + [(" true", None)]
        )
    ],
    "geneval": [
        {"id": "a", "tag": "colors", "prompt": "a", "include": [{"class": "bird", "count": 1}]},
        {
            "id": "b",
            "tag": "position",
            "prompt": "b",
            "include": [
                {"class": "dog", "count": 1, "color": "red"},
                {"class": "cat", "count": 2, "color": None, "position": ["left of", 0]},
            ],
            "exclude": [{"class": "dog", "count": 2}],
        },
        {"id": "c", "tag": "counting", "prompt": "c", "include": [{"class": "car", "count": 3}]},
    ],
    "chats": [
        {"id": "a", "messages": turns(parts("2+3?"), "It is 5.")},
        {"id": "b", "messages": turns("2+4?", parts("It is 6."))},
        {"id": "c", "messages": turns("007", "1e5", "null", "True")},
    ],
}
PROMPTS = {
    "answers": TABLES["answers"],
    "geneval": TABLES["geneval"],
    "chats": [{**row, "messages": row["messages"][:-1]} for row in TABLES["chats"]],
}


def write_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_parquet(path: Path, rows: Rows) -> None:
    lines = path.with_suffix(".source")
    write_lines(lines, rows)
    cache = str(path.parent.parent / "cache")
    found = load_dataset("json", data_files=str(lines), split="train", cache_dir=cache)
    found.to_parquet(str(path))  # type: ignore[union-attr]
    lines.unlink()


WRITERS: dict[str, Callable[[Path, Rows], Any]] = {
    ".jsonl": write_lines,
    ".json": lambda path, rows: path.write_text(json.dumps(rows)),
    ".parquet": write_parquet,
}
WAYS = [(suffix, "file") for suffix in WRITERS]
WAYS += [(".jsonl", "pattern"), (".parquet", "folder")]


def store(folder: Path, rows: Rows, suffix: str, way: str) -> str:
    """Write rows as one file, as one per row, or as a data set as it lies on the hub."""
    root = folder / "rows"
    root.mkdir()
    shards = [rows] if way != "pattern" else [[row] for row in rows]
    for n, shard in enumerate(shards):
        WRITERS[suffix](root / f"{n}{suffix}", shard)
    return str({"file": root / f"0{suffix}", "pattern": root / f"*{suffix}", "folder": root}[way])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("suffix", "way"), WAYS)
def test_a_row_is_the_same_prompt_and_example_from_everywhere(
    tmp_path: Path, table: str, suffix: str, way: str
) -> None:
    task = "text_to_image" if table == "geneval" else "text"
    write_lines(tmp_path / "rows.jsonl", PROMPTS[table])
    wanted = load_prompts(str(tmp_path / "rows.jsonl"), task)
    (tmp_path / "a").mkdir()
    source = store(tmp_path / "a", PROMPTS[table], suffix, way)
    assert load_prompts(source, task) == wanted

    config = SourceConfig(data="rows", completion_column="answer", turns="all")
    learned = TABLES[table] if table == "chats" else TABLES["answers"]
    expected = [read_pairs("", row, config, None) for row in learned]
    (tmp_path / "b").mkdir()
    source = store(tmp_path / "b", learned, suffix, way)
    streamed = [row for _, row in (read_row(row, "") for row in open_rows(source))]
    for rows in ([row for _, row in read_rows(source)], streamed):
        found = [read_pairs("", row, config, None) for row in rows]
        assert [[_bare(pair) for pair in pairs] for pairs in found] == [
            [_bare(pair) for pair in pairs] for pairs in expected
        ]


def _bare(pair: Any) -> Any:
    return replace(pair.given, id=""), pair.completion


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize("answer", [{"ground_truth": "4"}, ["3", "5"], float("nan"), float("inf")])
def test_what_is_no_reference_is_refused_by_row(tmp_path: Path, answer: Any, suffix: str) -> None:
    rows = [{"prompt": "x", "answer": 4}, {"prompt": "y", "answer": answer}]
    source = store(tmp_path, rows, suffix, "file")
    place = {".jsonl": "line 2", ".json": "entry 1"}[suffix]
    message = rf"{place}: answer is .*; it must be a text or a finite number\. Name the column"
    with pytest.raises(ConfigError, match=message):
        load_prompts(source, "text")


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_numbers_keep_their_digits(tmp_path: Path, suffix: str) -> None:
    numbers = [0.00001, 1e16, 2.5, -3.0, 1e-7, 0.1]
    rows = [{"prompt": "x", "answer": number} for number in numbers]
    found = [
        prompt.answer for prompt in load_prompts(store(tmp_path, rows, suffix, "file"), "text")
    ]
    assert found == ["0.00001", "10000000000000000", "2.5", "-3.0", "0.0000001", "0.1"]
