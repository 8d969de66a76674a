import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.eval_v import main
from mmrl.evaluation import benchmark
from mmrl.rewards import build_reward
from mmrl.types import Sample

ROOT = Path(__file__).resolve().parents[2]
RING = {"class": "ring", "count": 1}
CONFIG = f"config={ROOT / 'configs' / 'eval' / 'shapes_t2i.yaml'}"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


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


def test_scores_do_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    found = []
    for size in (2, 5):
        out = tmp_path / str(size)
        words = ["limit=5", "sampler.steps=3", f"batch_size={size}", f"output_dir={out}"]
        assert main([CONFIG, *words]) == 0
        found.append(json.loads((out / "scores.json").read_text())["samples"])
    assert found[0] == found[1]


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
    [
        ("sampler.name=emerg", "Did you mean 'emerge'"),
        ("model.path=nowhere", "nowhere"),
        ("limits=3", "Did you mean 'limit'"),
        ("output_dir=README.md", "output_dir is 'README.md'"),
        ("device=abacus", "device is 'abacus'"),
        ("rewards=[]", "rewards is empty and geneval_dir is null"),
    ],
)
def test_bad_settings_are_refused_by_name(
    word: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([CONFIG, f"output_dir={tmp_path}", word]) == 1
    assert message in capsys.readouterr().err


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [CONFIG, "dry_run=true", "limit=12", f"output_dir={tmp_path / 'out'}"]
    assert main([*words, "model.path=Gen-Verse/MMaDA-8B-Base"]) == 0
    said = capsys.readouterr().out
    assert "12: single_object 2, two_object 2" in said
    assert "20 steps of 12 rows" in said and "1 x partial: mean" in said
    assert "1 x strict: mean 0 (0 to 0)" in said
    assert not (tmp_path / "out").exists()


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
