"""Inputs that are still to be written are named with the commands that write them."""

from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError, load_config
from mmrl.config.settings import COMMAND, load_ready
from mmrl.config.yaml_file import read_yaml
from mmrl.sft import SFTConfig, main

ROOT = Path(__file__).resolve().parents[3]
SUPERVISED = sorted(path.name for path in (ROOT / "configs" / "sft").glob("shapes_*.yaml"))


def texts(value: Any) -> list[str]:
    """Every text in nested options."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [value] if isinstance(value, str) else []


def written_by(command: str) -> str:
    """The folder that a command writes: its `out`, or the `output_dir` of its YAML."""
    words = {key: value for key, _, value in (word.partition("=") for word in command.split())}
    return words.get("out") or words.get("output_dir") or read_yaml(words["config"]).output_dir


@pytest.mark.usefixtures("in_the_checkout")
@pytest.mark.parametrize("name", [*SUPERVISED, "text_llada.yaml"])
def test_a_shipped_recipe_names_a_command_for_everything_it_reads_below_runs(name: str) -> None:
    path = f"configs/sft/{name}"
    folders = [written_by(told) for told in COMMAND.findall(Path(path).read_text(encoding="utf-8"))]
    read = texts(load_config(SFTConfig, [f"config={path}"]).objective)
    generated = [Path(path) for path in read if path.startswith("runs/")]
    assert generated and all(any(p.is_relative_to(f) for f in folders) for p in generated)


@pytest.mark.parametrize("words", [[], ["dry_run=true"]], ids=["run", "dry run"])
def test_a_run_whose_data_is_not_generated_says_by_which_commands(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    assert main(["config=configs/sft/shapes_mmada_questions.yaml", *words]) == 1
    said = capsys.readouterr().err
    assert "objective.data is 'runs/shapes_world/train_pairs.parquet': not there. Write it" in said
    assert "  python datasets/shapes/write.py out=runs/shapes_world pairs=160000 seed=2" in said
    assert "clone" not in said and not (tmp_path / "runs").exists()


def test_without_the_repository_its_files_are_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["config=configs/sft/text_llada.yaml", "objective.data=mine.parquet"]
    with pytest.raises(ConfigError, match=r"objective.model is.*run in a clone"):
        load_ready(SFTConfig, words)
