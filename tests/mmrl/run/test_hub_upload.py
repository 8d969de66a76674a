"""Uploads to the hub, whose client copies into a folder here."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import filter_repo_objects

from mmrl.config import ConfigError
from mmrl.rl import main
from mmrl.run.hub_upload import check_upload
from tests.mmrl.runs import command_line

TOKEN = "hf_aTokenOfTheTestThatNoLogShows"


class Hub:
    """A folder in the place of the hub."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.failing = folder, False
        self.created: dict[str, Any] = {}
        patch.setattr("huggingface_hub.get_token", lambda: TOKEN)
        patch.setattr("huggingface_hub.constants.is_offline_mode", lambda: False)
        patch.setattr(HfApi, "create_repo", self.create)
        patch.setattr(HfApi, "upload_folder", self.receive)

    def create(self, name: str, private: bool | None, **_: Any) -> Any:
        self.created[name] = private
        return SimpleNamespace(repo_id=f"me/{name}")

    def receive(
        self,
        folder_path: Path,
        path_in_repo: str = "",
        ignore_patterns: list[str] | None = None,
        **_: Any,
    ) -> None:
        if self.failing:
            raise ConnectionError("The disk of the hub is full")
        names = [str(p.relative_to(folder_path)) for p in folder_path.rglob("*") if p.is_file()]
        for name in filter_repo_objects(names, ignore_patterns=ignore_patterns):
            (self.folder / path_in_repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder_path / name, self.folder / path_in_repo / name)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(tmp_path / "hub", monkeypatch)


def words(world: SimpleNamespace, output: Path, *more: str) -> list[str]:
    lora = ["save_steps=0", "push_to_hub=true", "model.lora={r: 4}"]
    return [*command_line(world, output), "max_steps=1", *lora, *more]


def test_a_finished_model_is_uploaded_with_its_card(
    world: SimpleNamespace, hub: Hub, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    assert main(words(world, output, "hub_private_repo=true")) == 0
    assert hub.created == {"run": True}
    stored = {path.name: path.read_bytes() for path in (output / "final").iterdir()}
    assert stored == hub.files()
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= stored.keys()
    written = [path.read_text(errors="replace") for path in output.glob("*.*") if path.is_file()]
    assert "is uploaded to me/run" in (output / "train.log").read_text()
    assert TOKEN not in "".join(written)


def test_an_upload_that_fails_leaves_the_finished_run(
    world: SimpleNamespace, hub: Hub, tmp_path: Path
) -> None:
    output, hub.failing = tmp_path / "run", True
    assert main(words(world, output, "hub_model_id=model")) == 0, "the training has not failed"
    log = (output / "train.log").read_text()
    assert f"hub_model_id: the upload of '{output / 'final'}' to 'model' failed" in log
    assert f"hf upload model {output / 'final'}" in log
    assert "The disk of the hub is full" in log and "Traceback" not in log
    assert (output / "final" / "adapter_model.safetensors").exists()


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
