"""Questions about images behind `mmrl.eval_v`, by a small LLaDA-V: tables, resuming, refusals."""

import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmrl.eval_v import main
from tests.mmrl.question_sets import (
    MMMU,
    MMMU_TYPES,
    OPEN,
    SEED,
    SEED_TYPES,
    VISTA_TYPES,
    VISTAS,
    image,
    on_the_hub,
)
from tests.mmrl.runs import SHAPES
from tests.models.networks import write_small_llada_v

ROOT = Path(__file__).resolve().parents[2]
TIMED = ("tokens_per_s", "raw_tokens_per_s")


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Paths of a small policy that sees and of a question of every tag and form."""
    folder = tmp_path_factory.mktemp("sight")
    write_small_llada_v(folder)
    with (SHAPES / "questions_test.jsonl").open() as lines:
        (folder / "questions.jsonl").write_text("".join(islice(lines, 3, None, 48)))
    return SimpleNamespace(policy=str(folder), prompts=str(folder / "questions.jsonl"))


def words(sight: SimpleNamespace, out: Path) -> list[str]:
    return [
        "config=configs/eval/shapes_questions.yaml",
        f"output_dir={out}",
        f"model.path={sight.policy}",
        "model.max_prompt_length=400",
        f"prompts={sight.prompts}",
        "num_samples=2",
        "batch_size=5",
        "settings=[{temperature: 1}]",
    ]


def numbers(out: Path) -> dict[str, Any]:
    """Everything in scores.json that is not a time or a place."""
    scores = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    rows = scores["table"].values()
    table = [{k: v for k, v in row.items() if k not in TIMED} for row in rows]
    return {"table": table, "groups": scores["groups"], "samples": scores["samples"]}


def test_questions_about_shapes_are_scored_by_tag_and_by_form(
    sight: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewards = "rewards=[{name: answer}, {name: format, mode: boxed, key: box}]"
    assert main([*words(sight, tmp_path), rewards]) == 0
    found = numbers(tmp_path)
    [row], [groups] = found["table"], found["groups"].values()
    assert row["n"] == 16 and 0 <= row["pass@1"] == row["avg@2"] <= row["pass@2"] <= 1
    assert {tag: cell["n"] for tag, cell in groups["tag"].items()} == dict.fromkeys(
        ("count", "color", "relation", "existence"), 4
    )
    assert {form: cell["n"] for form, cell in groups["form"].items()} == {"choice": 8, "short": 8}
    for cells in groups.values():
        total = sum(cell["accuracy"] * cell["n"] for cell in cells.values())
        assert total == pytest.approx(row["accuracy"] * row["n"])
        assert all("rewards/box/mean" in cell for cell in cells.values())
    said = capsys.readouterr().out
    assert "avg@2" in said and "existence" in said and "NFE" in said


SETS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "seed_bench": ([{**SEED, "image": [image(9)]}], SEED_TYPES, "test"),
    "mmmu": ([MMMU, OPEN], MMMU_TYPES, "validation"),
    "mathvista": (VISTAS, VISTA_TYPES, "testmini"),
}
GROUPS = {
    "seed_bench": {"tag": {"Instances Counting": 1}},
    "mmmu": {
        "discipline": {"Art and Design": 1, "Business": 1},
        "tag": {"Art_Theory": 1, "Finance": 1},
        "form": {"choice": 1, "short": 1},
    },
    "mathvista": {
        "tag": {"math-targeted-vqa": 4},
        "task": {"math word problem": 4},
        "skills": {"algebraic reasoning": 4, "arithmetic": 4},
        "answer_type": {"float": 1, "integer": 1, "list": 1, "text": 1},
    },
}


@pytest.mark.parametrize("name", SETS)
def test_the_configuration_of_a_public_set_runs_on_rows_of_its_schema(
    sight: SimpleNamespace, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    source = on_the_hub(tmp_path, *SETS[name])
    arguments = [f"config=configs/eval/lladav_{name}.yaml", f"prompts={source}", "device=cpu"]
    arguments += [f"model.path={sight.policy}", "model.dtype=float32"]
    assert main([*arguments, f"output_dir={tmp_path / 'out'}"]) == 0
    scores = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    [groups] = scores["groups"].values()
    found = {key: {v: cell["n"] for v, cell in cells.items()} for key, cells in groups.items()}
    assert found == GROUPS[name] and scores["left_out"] == 0
    asked = list(scores["prompts"].values())[0]
    assert asked.endswith("think") and "Answer" in asked
