"""Recorded completions of a run, sorted, filtered, and beside those of another step."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.demo.checkpoints import Checkpoints, find_checkpoints
from mmrl.demo.completions_view import (
    PAGE,
    advantage_color,
    choose,
    score_columns,
    show_completions,
)
from mmrl.demo.demo_config import DemoConfig
from mmrl.demo.page import build_page
from mmrl.demo.run_files import find_runs
from mmrl.demo.runs_tab import NONE, ORDERS, offer_scores, show
from tests.mmrl.demo.test_written import GOOD, write_rows


def row(prompt: str, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": f"about {prompt}", "reward": reward, **more}


def test_completions_are_sorted_and_filtered_by_any_score() -> None:
    rows = [row("a", 1.0, clip=0.1), row("b", 3.0, clip=None), row("Cat", 2.0, clip=0.9)]
    assert score_columns(rows) == ["reward", "clip"]
    assert [r["prompt"] for r in choose(rows, "reward")] == ["b", "Cat", "a"]
    assert [r["prompt"] for r in choose(rows, "clip", descending=False)] == ["a", "Cat", "b"]
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
    write_rows(tmp_path, {**GOOD, "clip": None}, {**GOOD, "clip": 0.5})
    assert offer_scores(tmp_path, "sums, step 10") == ["reward", "advantage", "clip"]
    assert offer_scores(tmp_path, "gone") == offer_scores(tmp_path, None) == ["reward"]


def test_a_page_beyond_the_last_shows_the_last(tmp_path: Path) -> None:
    write_rows(tmp_path, *[GOOD] * (PAGE + 1))
    asked = (tmp_path, "sums, step 10", NONE, "reward", ORDERS[0], "")
    last = f"{PAGE + 1} completions, {PAGE + 1} to {PAGE + 1}"
    assert last in show(*asked, 2) and show(*asked, 9) == show(*asked, 2)
    assert show(*asked, None) == show(*asked, 1)


def test_the_completion_of_another_step_is_below_that_of_the_same_prompt(tmp_path: Path) -> None:
    ids = [{**GOOD, "id": str(n), "completion": f"late {n}"} for n in range(2)]
    write_rows(tmp_path, *ids)
    early = [{"id": "1", "prompt": "1+1", "completion": "early 1", "math": 0.0}]
    path = tmp_path / "samples" / "eval_sums_000000.parquet"
    pq.write_table(pa.Table.from_pylist(early), path)
    files = ("sums, step 10", "sums, held out, step 0")
    page = show(tmp_path, *files, "reward", ORDERS[0], "", 1)
    assert "late 1" in page and "early 1" in page and "late 0" not in page
    with pytest.raises(ConfigError, match="choose a run and one of its steps"):
        show(tmp_path, files[0], "gone", "reward", ORDERS[0], "", 1)


def test_the_page_is_laid_out_with_and_without_runs(tmp_path: Path) -> None:
    write_rows(tmp_path, GOOD)
    offered = Checkpoints(find_checkpoints(DemoConfig(runs=[])), "cpu", 1)
    for runs in ({}, find_runs([str(tmp_path)])):
        places = {getattr(b, "elem_id", None) for b in build_page(offered, runs).blocks.values()}
        assert {"draw", "write", "ask"} <= places and ("completions" in places) == bool(runs)
