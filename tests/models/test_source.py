"""Where checkpoints come from: directories, the local cache of the hub, and what is asked of it."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from mmrl.models import load_model, source
from mmrl.models.loading import save_model
from mmrl.models.public_code import Source, describe_code
from mmrl.models.source import find_directory
from tests.models.networks import CONFIG, small_network


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


MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}


def write_source(folder: Path) -> Path:
    """A checkpoint with public code beside it."""
    network = small_network()
    network.public_config["auto_map"] = MAP
    save_model(network, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": MAP}))
    (folder / "modeling_own.py").write_text("own = 1\n")
    (folder / "configuration_own.py").write_text("own = 2\n")
    (folder / "generation_config.json").write_text('{"eos_token_id": 3}')
    return folder


def export(folder: Path, out: Path) -> Path:
    network = load_model(folder)
    network.norm.weight.data += 1
    save_model(network, out)
    return out


def test_code_beside_a_local_source_and_its_generation_settings_go_along(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    first = export(source, tmp_path / "first")
    again = export(first, tmp_path / "again")
    for folder in (first, again):
        assert json.loads((folder / "config.json").read_text())["auto_map"] == MAP
        for name in ("modeling_own.py", "configuration_own.py", "generation_config.json"):
            assert (folder / name).read_text() == (source / name).read_text()


def test_code_that_stays_on_the_hub_is_named_with_its_repository(tmp_path: Path) -> None:
    remote = Source("owner/model", tmp_path)
    found = describe_code({**CONFIG, "auto_map": MAP}, remote)["auto_map"]
    assert found == {name: f"owner/model--{entry}" for name, entry in MAP.items()}
    assert describe_code({**CONFIG, "auto_map": found}, remote)["auto_map"] == found
    tokenizer = {"AutoTokenizer": ["tokenization_own.Own", None]}
    found = describe_code({**CONFIG, "auto_map": tokenizer}, remote)["auto_map"]
    assert found == {"AutoTokenizer": ["owner/model--tokenization_own.Own", None]}
