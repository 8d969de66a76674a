"""Uploads to the hub, whose client notes what it is given here."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from huggingface_hub import HfApi

from mmrl.rl import main
from mmrl.run.sample_files import write_data_card
from tests.mmrl.runs import World, command_line

TOKEN = "hf_aTokenOfTheTestThatNoLogShows"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the hub is asked for: `created` and `uploaded`; `error`, if it is to fail."""
    asked: dict[str, Any] = {}

    def create(_: HfApi, name: str, private: bool | None, **more: Any) -> SimpleNamespace:
        asked["created"], asked["kind"] = (name, private), more["repo_type"]
        return SimpleNamespace(repo_id=f"me/{name}")

    def receive(_: HfApi, repo_id: str, folder_path: Path, **__: Any) -> None:
        if "error" in asked:
            raise asked["error"]
        asked["uploaded"] = repo_id, {path.name for path in Path(folder_path).iterdir()}

    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)
    monkeypatch.setattr(HfApi, "create_repo", create)
    monkeypatch.setattr(HfApi, "upload_folder", receive)
    return asked


def words(world: World, output: Path, *more: str) -> list[str]:
    lora = ["save_steps=0", "push_to_hub=true", "model.lora={r: 4}"]
    return [*command_line(world, output), "max_steps=1", *lora, *more]


def test_a_finished_model_is_uploaded_with_its_card(
    world: World, hub: dict[str, Any], tmp_path: Path
) -> None:
    output = tmp_path / "run"
    assert main(words(world, output, "hub_private_repo=true")) == 0
    assert hub["created"] == ("run", True)
    name, files = hub["uploaded"]
    assert name == "me/run" and files == {path.name for path in (output / "final").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= files
    assert 'load_policy("me/run"' in (output / "final" / "README.md").read_text()
    written = [path.read_text(errors="replace") for path in output.glob("*.*") if path.is_file()]
    assert "is uploaded to me/run" in (output / "train.log").read_text()
    assert TOKEN not in "".join(written)


def test_completions_are_uploaded_as_a_data_set(
    world: World, hub: dict[str, Any], tmp_path: Path
) -> None:
    more = ["push_to_hub=false", "log_completions_hub_repo=me/written", "tasks.shapes.diversity=[]"]
    assert main(words(world, tmp_path / "run", *more)) == 0
    (name, files), samples = hub["uploaded"], tmp_path / "run" / "samples"
    assert name == "me/me/written" and hub["kind"] == "dataset"
    rows = pq.read_table(samples / "completions_shapes_000001.parquet")
    pq.write_table(rows.drop(["id"]), samples / "completions_shapes_000002.parquet")
    pq.write_table(rows.drop(["id"]), samples / "completions_shapes_1_000001.parquet")
    write_data_card(samples, "me/written")
    for task, count in (("shapes", 16), ("shapes_1", 8)):
        found = load_dataset(str(samples), f"completions_{task}", cache_dir=str(tmp_path))
        assert found["train"].num_rows == count and "README.md" in files


def test_an_upload_that_fails_leaves_the_finished_run(
    world: World, hub: dict[str, Any], tmp_path: Path
) -> None:
    output, hub["error"] = tmp_path / "run", ConnectionError("The disk of the hub is full")
    assert main(words(world, output, "hub_model_id=model")) == 0, "the training has not failed"
    log, final = (output / "train.log").read_text(), output / "final"
    assert f"hub_model_id: the upload of '{final}' to 'model' failed" in log
    assert f"hf upload model {final}" in log and "Traceback" not in log
    assert "The disk of the hub is full" in log and (final / "adapter_model.safetensors").exists()


def test_what_cannot_be_uploaded_is_known_before_the_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    for name, more, said in (
        ("run", "verbose=false", "push_to_hub is True.* HF_TOKEN"),
        ("run", "hub_model_id=a/b/c", "hub_model_id, .* is 'a/b/c'"),
        ("my run", "dry_run=true", "hub_model_id, or the name of output_dir, is 'my run'"),
        ("run", "log_completions_hub_repo=a..b", "log_completions_hub_repo is 'a..b'"),
        ("run", "log_completions_hub_repo=a log_completions=false", "log_completions is False"),
    ):
        assert main(words(world, tmp_path / name, *more.split())) == 1
        assert re.search(said, capsys.readouterr().err)
