import json
from collections import Counter
from pathlib import Path

import pytest
from datasets import Dataset

from mmrl.config import ConfigError
from mmrl.data import fitting, load_prompts, spread
from mmrl.stream import stream_positions, stream_rows
from mmrl.types import Prompt

SHAPES = Path(__file__).resolve().parents[2] / "datasets" / "shapes"
ROW = {"tag": "colors", "include": [{"class": "bird", "count": 1, "color": "red"}], "prompt": "x"}


def _load(folder: Path, text: str, name: str = "rows.jsonl") -> list[Prompt]:
    (folder / name).write_text(text, encoding="utf-8")
    return load_prompts(str(folder / name), "text_to_image")


def test_geneval_rows_keep_their_metadata_and_do_not_repeat_the_prompt(tmp_path: Path) -> None:
    (prompt,) = _load(tmp_path, json.dumps(ROW))
    assert prompt.text == "x" and prompt.task == "text_to_image" and prompt.id == "rows-0"
    assert prompt.metadata == {"tag": "colors", "include": ROW["include"]}


def test_every_shapes_prompt_has_an_id_of_its_own() -> None:
    prompts = load_prompts(str(SHAPES / "test.jsonl"), "text_to_image")
    assert len({prompt.id for prompt in prompts}) == len(prompts) == 384


def test_a_json_list_a_jsonl_and_a_parquet_give_equal_prompts(tmp_path: Path) -> None:
    plain = {"tag": "colors", "include": [{"class": "ring", "count": 1}]}
    rows = [{"id": "a", "text": "one", **ROW}, {"id": "b", "text": "two", **plain}]
    rows = [{key: value for key, value in row.items() if key != "prompt"} for row in rows]
    jsonl = _load(tmp_path, "\n\n".join(map(json.dumps, rows)))
    assert _load(tmp_path, json.dumps(rows), "rows.json") == jsonl
    Dataset.from_list(rows).to_parquet(str(tmp_path / "rows.parquet"))
    assert load_prompts(str(tmp_path / "rows.parquet"), "text_to_image") == jsonl


def test_line_separators_and_a_byte_order_mark_do_not_break_lines(tmp_path: Path) -> None:
    rows = [{"prompt": "one\u2028line"}, {"prompt": "two"}]
    text = "\ufeff" + "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert [prompt.text for prompt in _load(tmp_path, text)] == ["one\u2028line", "two"]


def test_an_answer_is_text_and_no_metadata(tmp_path: Path) -> None:
    (prompt,) = _load(tmp_path, '{"prompt": "1 + 2?", "answer": 3, "id": null}')
    assert (prompt.answer, prompt.metadata, prompt.id) == ("3", {}, "rows-0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "x"}\n{"prompt": ', r"rows\.jsonl, line 2 is not JSON"),
        ('{"prompt": "x"}\n\n["x"]', r"line 3 is not a mapping"),
        ('{"question": "x"}', r"no text under 'prompt' or 'text'; it has \['question'\]"),
        ('{"prompt": "  "}', r"line 1 has no text"),
        ("", "holds no prompts"),
        (json.dumps({**ROW, "tag": "colours"}), "line 1: tag is 'colours'; allowed: single_object"),
        (json.dumps({**ROW, "tag": ["colors"]}), r"tag is \['colors'\]"),
        (json.dumps({**ROW, "include": "bird"}), "include is 'bird'; it must be a list"),
        (json.dumps({**ROW, "include": []}), r"include is \[\]"),
        (json.dumps({**ROW, "exclude": [{"class": "bird"}]}), "exclude is .* list of clauses"),
    ],
)
def test_a_broken_row_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(tmp_path, text)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'nowhere\.jsonl' is not a file"):
        load_prompts("nowhere.jsonl", "text_to_image")
    with pytest.raises(ConfigError, match="must hold a JSON list"):
        _load(tmp_path, '{"prompt": "x"}', "rows.json")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "caf\xe9"}')
    with pytest.raises(ConfigError, match=r"latin\.jsonl' is not UTF-8"):
        load_prompts(str(tmp_path / "latin.jsonl"), "text_to_image")


def test_a_broken_parquet_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match=r"rows\.parquet"):
        load_prompts(str(tmp_path / "rows.parquet"), "text_to_image")


def test_a_limit_takes_as_many_prompts_of_every_tag() -> None:
    prompts = load_prompts(str(SHAPES / "test.jsonl"), "text_to_image", limit=48)
    assert set(Counter(prompt.metadata["tag"] for prompt in prompts).values()) == {8}


@pytest.mark.parametrize(("limit", "rows"), [(None, 5), (2, 2), (5, 5), (9, 5)])
def test_spread_rows_are_distinct_and_in_order(limit: int | None, rows: int) -> None:
    found = spread(range(5), limit)
    assert found == sorted(set(found)) and len(found) == rows


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="limit is -1"):
        spread(range(5), -1)


def test_the_stream_shows_every_row_once_an_epoch_in_a_new_order() -> None:
    first, second = (stream_rows(3, range(n, n + 7), 7) for n in (0, 7))
    assert sorted(first) == sorted(second) == list(range(7)) and first != second


def test_two_ranks_see_what_one_rank_sees_in_two_micro_batches() -> None:
    ranks = [place for rank in (0, 1) for place in stream_positions(2, rank, 2, 4)]
    single = [place for step in (4, 5) for place in stream_positions(step, 0, 1, 4)]
    assert ranks == single


def test_prompts_that_are_too_long_leave_with_all_that_is_theirs_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"prompt": "x" * n, "answer": n, "level": n} for n in (3, 9, 1, 8, 2)]
    prompts = _load(tmp_path, "\n".join(map(json.dumps, rows)))
    kept = fitting(prompts, lambda prompt: len(prompt.text) <= 3, "rows.jsonl")
    assert [(p.id, len(p.text), p.answer, p.metadata["level"]) for p in kept] == [
        ("rows-0", 3, "3", 3), ("rows-2", 1, "1", 1), ("rows-4", 2, "2", 2),
    ]  # fmt: skip
    assert "rows.jsonl: 2 of 5 prompts are longer than model.max_prompt_length" in caplog.text
    assert fitting(prompts, lambda _: True, "rows.jsonl") == prompts
    assert len(caplog.records) == 1
    with pytest.raises(ConfigError, match=r"all 5 prompts of 'rows\.jsonl' are longer"):
        fitting(prompts, lambda _: False, "rows.jsonl")
