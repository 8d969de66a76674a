"""Where checkpoints come from: directories, the local cache of the hub, and what is asked of it."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from mmrl.models import load_model, source
from mmrl.models.loading import save_model
from mmrl.models.source import find_directory
from tests.models.networks import small_network


def snapshot(cache: Path, hub_id: str) -> Path:
    """The folder in which the hub's client keeps one version of a repository."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    folder = repository / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    return folder


def test_a_hub_id_loads_from_the_local_cache_without_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    save_model(small_network(), snapshot(tmp_path, "somebody/small-model"))
    assert load_model("somebody/small-model").core == small_network().core


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("nobody/no-such-model", "`hf download nobody/no-such-model`"),
        *((name, "a hub id such as") for name in ("not a hub id", "/no/such/folder", "")),
    ],
)
def test_what_is_neither_directory_nor_repository_is_one_error_with_what_to_do(
    name: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        find_directory(name)
    for part in (repr(name), "neither an existing directory", advice):
        assert part in str(caught.value)
    assert not caught.value.__cause__ and not caught.value.__context__


@pytest.mark.parametrize(
    ("pickled", "has_safetensors"), [(True, True), (True, False), (False, False)]
)
def test_code_is_never_fetched_and_pickles_only_where_they_will_do_and_are_all_there_is(
    pickled: bool, has_safetensors: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(hub_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        assert "*.fp16.*" in ignore_patterns
        if has_safetensors:
            (tmp_path / "model.safetensors").touch()
        return str(tmp_path)

    monkeypatch.setattr(source, "snapshot_download", download)
    assert find_directory("somebody/model", pickled=pickled) == tmp_path
    assert {"*.json", "*.safetensors"} <= set(asked)
    assert ("pytorch_model.bin" in asked) == (pickled and not has_safetensors)
    assert not any(pattern.endswith(("*", ".py")) for pattern in asked)


def test_of_a_pipeline_only_the_weights_of_its_parts_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def download(hub_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        index = {"_class_name": "P", "vae": ["diffusers", "A"], "text_encoder_3": [None, None]}
        (tmp_path / "model_index.json").write_text(json.dumps(index))
        return str(tmp_path)

    monkeypatch.setattr(source, "snapshot_download", download)
    find_directory("somebody/pipeline")
    assert [each for each in asked if "safetensors" in each] == ["vae/*.safetensors"]
