import json
from pathlib import Path

from PIL import Image

from mmrl.evaluation.results import write_geneval_folders
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import CELL, draw_grid
from mmrl.run.image_grid import GAP
from mmrl.types import Prompt

ROW = {"tag": "colors", "include": [{"class": "bird", "count": 1, "color": "red"}]}


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
