"""Uploads to the hub, to a real server on this machine."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mmrl.config import ConfigError
from mmrl.rl import main
from mmrl.run.hub_upload import check_upload
from tests.mmrl.run.hub_server import TOKEN, Hub, serve_hub
from tests.mmrl.runs import ROOT, command_line


def run(world: SimpleNamespace, output: Path, hub: Hub, *words: str) -> subprocess.CompletedProcess:
    """A run of one step that uploads its model, in a process that knows the hub's address."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HUB_OFFLINE": "0",
        "TRANSFORMERS_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "mmrl.rl", *command_line(world, output), "max_steps=1"]
    command += ["save_steps=0", "push_to_hub=true", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def everything(output: Path) -> str:
    files = (path for path in output.rglob("*") if path.suffix in (".log", ".txt", ".yaml", ".md"))
    return "".join(path.read_text() for path in files)


@pytest.mark.slow
def test_a_finished_model_is_uploaded_with_its_card(world: SimpleNamespace, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with serve_hub() as hub:
        words = ["hub_private_repo=true", "model.lora={r: 4}"]
        done = run(world, output, hub, *words)
    assert done.returncode == 0, done.stderr
    [created] = hub.created
    assert created["name"] == "run" and created.get("private", created.get("visibility"))
    stored = {p.name: p.read_bytes() for p in (output / "final").iterdir()}
    assert stored.pop("SHA256SUMS") and {**stored} == {
        name: content for name, content in hub.files.items() if name != ".gitattributes"
    }
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= hub.files.keys()
    assert "is uploaded to me/run" in (output / "train.log").read_text()
    assert TOKEN not in everything(output) + done.stdout + done.stderr


@pytest.mark.slow
def test_a_failed_upload_loses_nothing_and_says_how_to_repeat_it(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with serve_hub(failing=True) as hub:
        done = run(world, output, hub, "hub_model_id=me/model")
    assert done.returncode == 0, "the training has not failed"
    assert "hub_model_id: the upload of" in done.stderr and "to 'me/model' failed" in done.stderr
    assert f"hf upload me/model {output / 'final'}" in done.stderr
    assert "The disk of the hub is full" in done.stderr and "Traceback" not in done.stderr
    assert (output / "final" / "model.safetensors").exists() and (output / "report.html").exists()
    assert TOKEN not in everything(output) + done.stdout + done.stderr


def test_what_cannot_be_uploaded_is_known_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ConfigError, match="push_to_hub is True.* HF_TOKEN"):
        check_upload("me/model")
    with pytest.raises(ConfigError, match="hub_model_id is 'a/b/c'"):
        check_upload("a/b/c")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_x")
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE"):
        check_upload("me/model")


@pytest.mark.slow
@pytest.mark.parametrize("failing", [False, True])
def test_checkpoints_are_uploaded_while_the_run_goes_on(
    failing: bool, world: SimpleNamespace, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with serve_hub(failing=failing) as hub:
        words = ["hub_strategy=checkpoint", "save_steps=1", "max_steps=2", "model.lora={r: 4}"]
        done = run(world, output, hub, *words)
    log = (output / "train.log").read_text()
    if failing:
        assert done.returncode == 0, "nor could the finished model be uploaded"
        for folder in ("checkpoints/1", "final"):
            assert f"hub_model_id: the upload of '{output / folder}' to 'run' failed" in log
        assert (output / "final" / "adapter_model.safetensors").exists()
        return
    assert done.returncode == 0, done.stderr
    assert f"'{output / 'checkpoints/1'}' is uploaded to me/run" in log
    assert {"adapter_model.safetensors", "last-checkpoint/trainer_state.pt"} <= hub.files.keys()
    assert "trainer_state.pt" not in hub.files and "last-checkpoint/SHA256SUMS" in hub.files
    stored = tmp_path / "last-checkpoint"
    for name, content in hub.files.items():
        if name.startswith("last-checkpoint/"):
            path = stored / name.removeprefix("last-checkpoint/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    words = [*command_line(world, tmp_path / "on"), f"resume_from_checkpoint={stored}"]
    assert main([*words, "max_steps=3", "model.lora={r: 4}"]) == 0
