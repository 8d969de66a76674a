"""Results of image benchmarks: means by tag and by category of question, folders, grids."""

import json
import math
from pathlib import Path

import pytest
from PIL import Image

from mmrl.evaluation.image_benchmark import format_rows, mean_by_category
from mmrl.evaluation.results import write_geneval_folders
from mmrl.rewards.registry.interface import Item
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import CELL, draw_grid
from mmrl.rollouts.means import mean_by_tag
from mmrl.run.image_grid import GAP
from mmrl.types import Prompt

ROW = {"tag": "colors", "include": [{"class": "bird", "count": 1, "color": "red"}]}


def _prompts(tags: list[str]) -> list[Prompt]:
    return [
        Prompt(str(n), "text_to_image", "x", metadata={"tag": tag}) for n, tag in enumerate(tags)
    ]


def test_the_overall_score_is_the_mean_over_tags_as_in_geneval() -> None:
    table = mean_by_tag(_prompts(["colors", "colors", "colors", "position"]), [1.0, 1.0, 0.0, 0.0])
    assert table["colors"]["mean"] == pytest.approx(2 / 3)
    assert table["mean over tags"]["mean"] == pytest.approx(1 / 3)
    assert table["mean over prompts"]["mean"] == pytest.approx(0.5)


def test_images_of_one_prompt_do_not_pass_for_independent_prompts() -> None:
    prompts = [prompt for prompt in _prompts(["colors"] * 4) for _ in range(3)]
    scores = [score for score in (1.0, 0.0, 1.0, 0.0) for _ in range(3)]
    table = mean_by_tag(prompts, scores)
    assert table["colors"]["n"] == 12
    assert table["colors"]["stderr"] == pytest.approx(math.sqrt(1 / 3) / 2)


def test_a_score_that_does_not_apply_is_left_out() -> None:
    table = mean_by_tag(_prompts(["colors", "colors"]), [1.0, math.nan])
    assert table["colors"] == {"mean": 1.0, "stderr": 0.0, "n": 1.0}


def test_categories_pool_the_questions_of_all_images_and_the_score_is_over_images() -> None:
    color, whole = "attribute - color", "entity - whole"
    items = [
        [Item(whole, 1, 1), Item(color, 1, 1), Item("attribute - size", 0, 0)],
        [Item(whole, 0, 0), Item(color, 1, 0)],
        [],
    ]
    scores = {"dsg": [2 / 3, 0.0, math.nan]}
    found = mean_by_category(Evaluation(_prompts(["t"] * 3), [], scores, {"dsg": items}), "dsg")
    assert list(found["yes"]) == ["attribute", "entity", color, "attribute - size", whole]
    yes, score = ([cell["mean"] for cell in found[key].values()] for key in ("yes", "score"))
    assert yes == pytest.approx([2 / 3, 0.5, 1, 0, 0.5])
    assert score == pytest.approx([1 / 3, 0.5, 0.5, 0, 0.5, 1 / 3])
    said = format_rows("dsg x 100", found, 100)
    assert "66.67" in said and said.splitlines()[-1].split()[:4] == ["mean", "over", "prompts", "-"]


def test_folders_are_as_the_geneval_evaluator_reads_them(tmp_path: Path) -> None:
    prompts = [Prompt(str(n), "text_to_image", f"prompt {n}", metadata=ROW) for n in range(2)]
    images = [Image.new("RGB", (8, 8), (40 * n, 0, 0)) for n in range(6)]
    write_geneval_folders(tmp_path, prompts, images)
    row = json.loads((tmp_path / "00001" / "metadata.jsonl").read_text())
    assert row == {**ROW, "prompt": "prompt 1"}
    with Image.open(tmp_path / "00001" / "samples" / "00002.png") as image:
        assert image.getpixel((0, 0)) == (200, 0, 0)


def test_edits_are_shown_beside_their_sources() -> None:
    source = Image.new("RGB", (16, 8), (200, 0, 0))
    prompts = [Prompt("0", "image_edit", "make it blue", images=[source], metadata=ROW)]
    edited = Image.new("RGB", (8, 8), (0, 0, 200))
    grid = draw_grid(Evaluation(prompts, [edited], {"clip": [0.5]}), 1)
    assert grid is not None and grid.width == 2 * CELL + 3 * GAP
    middle = GAP + CELL // 2
    found = [grid.getpixel((GAP + n * (CELL + GAP) + CELL // 2, middle)) for n in range(2)]
    assert found == [(200, 0, 0), (0, 0, 200)]
    assert grid.getpixel((middle, GAP)) == (255, 255, 255)  # a wide source keeps its shape
