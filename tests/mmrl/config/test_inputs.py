"""Inputs that are still to be written are named with the commands that write them."""

from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError, load_config
from mmrl.config.inputs import COMMAND, load_ready, written_by
from mmrl.sft import SFTConfig, main

ROOT = Path(__file__).resolve().parents[3]
SUPERVISED = sorted(path.name for path in (ROOT / "configs" / "sft").glob("shapes_*.yaml"))
PAIRS = "  python datasets/shapes/write.py out=runs/shapes_world"


def texts(value: Any) -> list[str]:
    """Every text in nested options."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", [*SUPERVISED, "text_llada.yaml"])
def test_a_shipped_recipe_names_a_command_for_everything_it_reads_below_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = f"configs/sft/{name}"
    told = COMMAND.findall(Path(path).read_text(encoding="utf-8"))
    folders = [written_by(command) for command in told]
    read = [Path(text) for text in texts(load_config(SFTConfig, [f"config={path}"]).objective)]
    generated = [path for path in read if path.parts[:1] == ("runs",)]
    assert generated and all(any(p.is_relative_to(f) for f in folders if f) for p in generated)
    for command in told:
        script = command.split()[1]
        assert script == "-m" or Path(script).is_file(), command


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
    assert "objective.questions.data is 'runs/shapes_questions/question_pairs.parquet'" in said
    assert said.count("  python datasets/") == 3 and f"{PAIRS} pairs=160000 seed=2" in said
    assert "clone" not in said and not (tmp_path / "runs").exists()


def test_only_what_is_missing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    (tmp_path / "runs/shapes_careless_images").mkdir(parents=True)
    (tmp_path / "runs/shapes_careless_images/train_pairs.parquet").touch()
    with pytest.raises(ConfigError) as error:
        load_ready(SFTConfig, ["config=configs/sft/shapes_mmada_careless.yaml"])
    last = str(error.value).splitlines()[-1]
    assert last.startswith("  python -m mmrl.sft config=configs/sft/shapes_mmada.yaml ")
    (tmp_path / "runs/shapes_mmada_attributes/final").mkdir(parents=True)
    assert load_ready(SFTConfig, ["config=configs/sft/shapes_mmada_careless.yaml"])


def test_without_the_repository_its_files_are_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["config=configs/sft/text_llada.yaml", "objective.data=mine.parquet"]
    with pytest.raises(ConfigError, match=r"objective.model is(?s:.*)run in a clone"):
        load_ready(SFTConfig, words)
