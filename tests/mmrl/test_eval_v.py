import json
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from mmrl.eval_v import main
from mmrl.evaluation import benchmark
from mmrl.rewards import build_reward
from mmrl.types import Sample
from tests.mmrl.question_sets import SETS, on_the_hub
from tests.mmrl.runs import SHAPES
from tests.models.networks import write_small_llada_v

ROOT = Path(__file__).resolve().parents[2]
RING = {"class": "ring", "count": 1}
CONFIG = f"config={ROOT / 'configs' / 'eval' / 'shapes_t2i.yaml'}"

pytestmark = pytest.mark.usefixtures("in_the_checkout")


def test_the_benchmark_writes_table_scores_images_and_folders(tmp_path: Path) -> None:
    words = [CONFIG, "limit=6", "sampler.steps=2", f"output_dir={tmp_path}"]
    assert main([*words, f"geneval_dir={tmp_path / 'folders'}"]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    table = scores["tables"]["strict"]["mean over prompts"]
    each = [sample["strict"] for sample in scores["samples"]]
    assert table["n"] == 6 and table["mean"] == pytest.approx(sum(each) / 6)
    assert scores["config"]["sampler"]["steps"] == 2
    assert len({row["id"].rsplit("-", 1)[0] for row in scores["samples"]}) == 1
    assert set(scores["tables"]["strict"]) >= {"counting", "position", "color_attr"}
    assert "mean over tags" in (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert (tmp_path / "images.png").is_file()
    assert (tmp_path / "folders" / "00005" / "samples" / "00000.png").is_file()


def test_the_table_has_the_diversity_of_the_images_of_a_prompt(tmp_path: Path) -> None:
    words = [CONFIG, "limit=4", "num_images_per_prompt=3", "sampler.steps=4", "batch_size=5"]
    assert main([*words, f"output_dir={tmp_path}"]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text())
    table = (tmp_path / "table.txt").read_text(encoding="utf-8")
    for name in ("tokens", "background"):
        cell = scores["tables"][f"diversity/{name}"]["mean over prompts"]
        assert 0 <= cell["mean"] <= 1 and f"diversity/{name}" in table
    assert scores["tables"]["diversity/tokens"]["mean over prompts"]["n"] == 4
    stored = tmp_path / "samples" / "0-00000.json"
    batch = json.loads(stored.read_text())
    assert [len(row) for row in batch["tokens"]] == [64] * 5


def test_an_interrupted_benchmark_continues_with_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [CONFIG, "limit=4", "sampler.steps=2", "batch_size=2"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*words, f"output_dir={whole}"]) == 0
    sampled: list[str] = []
    sample_batch = benchmark.sample_batch

    def interrupted(*arguments: Any) -> Any:
        sampled.append(arguments[1][0][0].id)
        if len(sampled) == 2:
            raise KeyboardInterrupt
        return sample_batch(*arguments)

    monkeypatch.setattr(benchmark, "sample_batch", interrupted)
    assert main([*words, f"output_dir={parts}"]) == 130
    assert main([*words, f"output_dir={parts}"]) == 0
    assert len(sampled) == 3 and sampled[1] == sampled[2]
    found = [json.loads((out / "scores.json").read_text())["samples"] for out in (whole, parts)]
    assert found[0] == found[1]
    assert (whole / "images.png").read_bytes() == (parts / "images.png").read_bytes()
    assert main([*words, f"output_dir={parts}", "sampler.cfg_scale=2"]) == 1
    assert "sampler.cfg_scale: 0.0 there, 2.0 now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "message"),
    [("sampler.name=emerg", "Did you mean 'emerge'"), ("model.path=nowhere", "nowhere")]
    + [("limits=3", "Did you mean 'limit'"), ("output_dir=README.md", "output_dir is 'README.md'")]
    + [("device=abacus", "device is 'abacus'")]
    + [("rewards=[]", "rewards is empty and geneval_dir is null")],
)
def test_bad_settings_are_refused_by_name(
    word: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([CONFIG, f"output_dir={tmp_path}", word]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_geneval_is_scored_on_the_very_images_of_its_folders(tmp_path: Path) -> None:
    out, folders = tmp_path / "out", tmp_path / "folders"
    words = ["limit=12", "sampler.steps=8", "num_images_per_prompt=2", f"output_dir={out}"]
    words += ["rewards=[{name: shapes, exact: false, key: geneval}]", f"geneval_dir={folders}"]
    assert main([CONFIG, *words]) == 0
    scores = json.loads((out / "scores.json").read_text())
    reward = build_reward({"name": "shapes", "exact": False})
    tags: dict[str, list[Any]] = {}
    for folder in sorted(folders.iterdir()):
        row = json.loads((folder / "metadata.jsonl").read_text())
        images = [Image.open(path) for path in sorted((folder / "samples").iterdir())]
        found = reward([Sample(row["prompt"], image, row) for image in images])
        tags.setdefault(row["tag"], []).extend(found)
    assert len(tags) == 6 and sum(map(sum, tags.values())) > 0
    table = scores["tables"]["geneval"]
    means = {tag: sum(found) / len(found) for tag, found in tags.items()}
    assert {tag: table[tag]["mean"] for tag in means} == pytest.approx(means)
    assert table["mean over tags"]["mean"] == pytest.approx(sum(means.values()) / 6)


TIMED = ("tokens_per_s", "raw_tokens_per_s")


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Paths of a small policy that sees and of a question of every tag and form."""
    folder = tmp_path_factory.mktemp("sight")
    write_small_llada_v(folder)
    with (SHAPES / "questions_test.jsonl").open() as lines:
        (folder / "questions.jsonl").write_text("".join(islice(lines, 3, None, 48)))
    return SimpleNamespace(policy=str(folder), prompts=str(folder / "questions.jsonl"))


def words(sight: SimpleNamespace, out: Path) -> list[str]:
    return (
        ["config=configs/eval/shapes_questions.yaml", f"output_dir={out}"]
        + [f"model.path={sight.policy}", "model.max_prompt_length=400"]
        + [f"prompts={sight.prompts}", "num_samples=2", "batch_size=5"]
        + ["settings=[{temperature: 1}]"]
    )


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


GROUPS = {
    "seed_bench": {"tag": {"Instances Counting": 1}},
    "mmmu": {
        "discipline": {"Art and Design": 1, "Business": 1},
        "tag": {"Art_Theory": 1, "Finance": 1},
        "form": {"choice": 1, "short": 1},
    },
    "mathvista": {"tag": {"math-targeted-vqa": 4}, "task": {"math word problem": 4}}
    | {"skills": {"algebraic reasoning": 4, "arithmetic": 4}}
    | {"answer_type": {"float": 1, "integer": 1, "list": 1, "text": 1}},
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
