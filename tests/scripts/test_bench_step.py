"""The benchmark of a whole step: both ways do the same work, and operations are those of theory."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmrl.models.network.flops import count_forward, row_sizes
from tests.models.networks import small_core

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
TINY = {
    "width": 128,
    "layers": 1,
    "image_size": 32,
    "length": 8,
    "block_size": 4,
    "text_steps": 4,
    "steps": 3,
    "max_prompt_length": 60,
    "num_generations": 2,
    "results": None,
}


@pytest.fixture(scope="module")
def step() -> Iterator[ModuleType]:
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH.parent))
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("step")


@pytest.fixture(scope="module")
def folder(step: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy and an image tokenizer of few sizes."""
    path = tmp_path_factory.mktemp("policy")
    step.write_policy(step.Setting(**TINY), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("task", ["image", "text", "vision"])
def test_both_ways_do_the_same_and_ours_is_compared_with_the_machine(
    task: str, step: ModuleType, folder: Path
) -> None:
    ours, other = step.measure(step.Setting(**TINY), task, folder)
    assert other["same_tokens"] == 1
    assert other["loss_difference"] < 1e-5
    assert other["grad_norms"][0] == pytest.approx(other["grad_norms"][1], rel=1e-3)
    assert other["tflop"] == ours["tflop"] and ours["forward_passes"]["update"] == 1
    assert ours["mfu"].keys() == {"rollout", "scoring", "update"}
    assert all(value > 0 for value in ours["mfu"].values())
    assert sum(ours["share"].values()) == pytest.approx(1, abs=0.01)
    assert ours["forward_passes"]["rollout"] == (3 if task == "image" else 4)


@pytest.mark.slow
def test_two_processes_are_compared_with_one(
    step: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"{key}={value}" for key, value in TINY.items() if key != "results"]
    words += ["tasks=[text]", "num_prompts=2", "processes=[1,2]"]
    monkeypatch.setattr(sys, "argv", ["step.py", *words])
    setting = step.Setting(**TINY, tasks=["text"], num_prompts=2, processes=[1, 2])
    line = step.compare_processes(setting, "text", folder)
    for key in ("rollouts_per_rollout_s", "rollouts_per_s"):
        assert line[key].keys() == {1, 2} and all(speed > 0 for speed in line[key].values())
        assert line[f"{key}_ratio"] == pytest.approx(line[key][2] / line[key][1], abs=1e-3)


def test_a_line_is_printed_and_added_to_its_file(
    step: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results: Any = importlib.import_module("results")
    for ratio in (1, 2):
        results.report({"bench": "step", "ratio": ratio}, str(tmp_path / "kept"))
    lines = (tmp_path / "kept" / "step.jsonl").read_text().splitlines()
    shown = capsys.readouterr()
    assert [json.loads(line)["ratio"] for line in lines] == [1, 2]
    assert shown.out.splitlines() == lines and str(tmp_path / "kept") in shown.err


def test_products_of_a_pass_are_its_operations_without_attention(step: ModuleType) -> None:
    rates: Any = importlib.import_module("matmul_rate")
    core, size = small_core(), row_sizes(2, 11, 4, 20)
    found = rates.products(core, size)
    counted = sum(2 * a * b * c * number for (a, b, c), number in found.items())
    attention = 4 * (size.pairs + size.wanted_pairs) * core.num_heads * core.head_dim
    assert counted == count_forward(core, size) - attention


def test_the_page_of_results_is_that_of_its_files(step: ModuleType) -> None:
    tables: Any = importlib.import_module("tables")
    folder = BENCH / "results"
    assert (folder / "README.md").read_text() == tables.page(folder)
    assert "| image | ours |" in tables.page(folder)
