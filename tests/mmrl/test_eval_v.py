import json
from pathlib import Path

import pytest

from mmrl.config import load_config
from mmrl.eval_v import EvalConfig, main

ROOT = Path(__file__).resolve().parents[2]
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
    assert "mean over tags" in (tmp_path / "table.txt").read_text()
    assert (tmp_path / "folders" / "00005" / "samples" / "00000.png").is_file()


def test_scores_do_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    found = []
    for size in (2, 5):
        out = tmp_path / str(size)
        words = ["limit=5", "sampler.steps=3", f"batch_size={size}", f"output_dir={out}"]
        assert main([CONFIG, *words]) == 0
        found.append(json.loads((out / "scores.json").read_text())["samples"])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sampler.name=emerg", "Did you mean 'emerge'"),
        ("model.path=nowhere", "nowhere"),
        ("prompts=nowhere.jsonl", "nowhere.jsonl"),
        ("rewards=[{name: shape}]", "Did you mean 'shapes'"),
        ("limits=3", "Did you mean 'limit'"),
    ],
)
def test_bad_settings_are_refused_by_name(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([CONFIG, word]) == 1
    assert message in capsys.readouterr().err


def test_every_evaluation_config_parses() -> None:
    for path in sorted((ROOT / "configs" / "eval").glob("*.yaml")):
        load_config(EvalConfig, [f"config={path}"])
