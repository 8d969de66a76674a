"""Runs beside each other: curves, scores, settings, and their completions sorted and filtered."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.demo.compared import draw_curves, overlay, score_rows, setting_rows, short, table
from mmrl.demo.completions_view import (
    PAGE,
    advantage_color,
    choose,
    score_columns,
    show_completions,
)
from mmrl.demo.runs_tab import compare, offer_scores

LINES = [
    {"step": 0, "eval/sums/math": 0.2, "eval/sums/math/stderr": 0.05, "eval/sums/math/easy": 0.5},
    {"step": 1, "reward": 0.1},
    {"step": 2, "reward": 0.4, "eval/sums/math": 0.3, "eval/sums/math/stderr": 0.04},
]


def row(prompt: str, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": f"about {prompt}", "reward": reward, **more}


def test_curves_of_a_metric_lie_over_each_other() -> None:
    found = overlay({"a": LINES, "b": LINES[:2]}, ["Reward", "Held-out score"])
    assert set(found) == {"reward", "eval/sums/math"}
    assert [(c.name, len(c.points)) for c in found["reward"]] == [("a", 2), ("b", 1)]
    page = draw_curves({"a": LINES, "<i>$b": LINES}, ["Reward"])
    assert page.count("<svg") == 1 and "<i>" not in page
    assert "No such metrics" in draw_curves({"a": []}, ["Reward"])


def test_held_out_scores_have_a_row_for_each_tag_and_a_column_for_each_run() -> None:
    rows = score_rows({"a": LINES, "b": LINES[:1]})
    assert rows[0] == ["held-out score: first → last ± standard error", "a", "b"]
    assert rows[1] == ["sums, math: all prompts", "0.200 → 0.300 ± 0.040", "0.200 → 0.200 ± 0.050"]
    assert rows[2][0] == "sums, math: easy" and score_rows({"a": []}) == []


def test_settings_that_differ_are_listed_and_equal_ones_are_not(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        (tmp_path / name).mkdir()
        settings = {"seed": 0, "learning_rate": rate, "rewards": [{"name": name}]}
        (tmp_path / name / "config.yaml").write_text(json.dumps(settings))
    runs = {str(tmp_path / name): tmp_path / name for name in "ab"}
    expected = [["setting", "a", "b"], ["learning_rate", "0.1", "0.2"]]
    assert setting_rows(runs) == [*expected, ["rewards[0].name", "'a'", "'b'"]]
    assert setting_rows(dict(list(runs.items())[:1])) == []
    assert list(short({"x/a": Path("x/a"), "y/a": Path("y/a")})) == ["x/a", "y/a"]
    (tmp_path / "b" / "config.yaml").write_text("{")
    assert all("<table>" in each or "<p>" in each for each in compare(runs, ["Reward"]))
    assert table([["<b>"], ["<i>"]], "").count("&lt;") == 2


def test_completions_are_sorted_and_filtered_by_any_score() -> None:
    rows = [row("a", 1.0, clip=0.1), row("b", 3.0, clip=None), row("Cat", 2.0, clip=0.9)]
    assert score_columns(rows) == ["reward", "clip"]
    assert [r["prompt"] for r in choose(rows, "reward")] == ["b", "Cat", "a"]
    assert [r["prompt"] for r in choose(rows, "clip", descending=False)] == ["a", "Cat", "b"]
    assert [r["prompt"] for r in choose(rows, "clip", least=0.5)] == ["Cat"]
    assert [r["prompt"] for r in choose(rows, "reward", most=2)] == ["Cat", "a"]
    assert [r["prompt"] for r in choose(rows, "reward", containing="CAT")] == ["Cat"]


def test_completions_are_shown_with_every_score_and_escaped() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    image = {"bytes": buffer.getvalue(), "path": None}
    rows = [row("<script>", 0.25, advantage=-1.0), row("b", 1.0, completion=image)]
    page = show_completions(rows)
    assert "<script>" not in page and "reward: 0.250" in page and "advantage: -1.000" in page
    assert page.count("data:image/png;base64") == 1 and advantage_color(-1.0) in page
    assert "No completions" in show_completions(rows, page=1)
    broken = show_completions([row("c", 0.0, completion={"bytes": b"<b>"})])
    assert "<img" not in broken and "<b>c" in broken
    assert len({advantage_color(value) for value in (1.0, -1.0, 0.0)}) == 3


def test_scores_to_sort_by_are_those_of_any_row_of_the_file(tmp_path: Path) -> None:
    from tests.mmrl.demo.test_written import GOOD, write_rows

    write_rows(tmp_path, {**GOOD, "clip": None}, {**GOOD, "clip": 0.5})
    assert offer_scores(tmp_path, "sums, step 10") == ["reward", "advantage", "clip"]
    assert offer_scores(tmp_path, "gone") == offer_scores(tmp_path, None) == ["reward"]


def test_limits_must_be_numbers(tmp_path: Path) -> None:
    from mmrl.demo.runs_tab import ORDERS, show
    from tests.mmrl.demo.test_written import GOOD, write_rows

    write_rows(tmp_path, GOOD)
    asked = (tmp_path, "sums, step 10", "reward", ORDERS[0], "")
    assert "row: 0" in show(*asked, "", "", 1)
    assert "1+1" in show(*asked, "0.5", "", 1) and "1+1" not in show(*asked, "", "0.5", 1)
    with pytest.raises(ConfigError, match="score at least is 'much'"):
        show(*asked, "much", "", 1)


def test_a_page_beyond_the_last_shows_the_last(tmp_path: Path) -> None:
    from mmrl.demo.runs_tab import ORDERS, show
    from tests.mmrl.demo.test_written import GOOD, write_rows

    write_rows(tmp_path, *[GOOD] * (PAGE + 1))
    asked = (tmp_path, "sums, step 10", "reward", ORDERS[0], "", "", "")
    last = f"{PAGE + 1} completions, {PAGE + 1} to {PAGE + 1}"
    assert last in show(*asked, 2) and show(*asked, 9) == show(*asked, 2)
    assert show(*asked, None) == show(*asked, 1)
