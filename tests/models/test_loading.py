"""Loading and saving directories in the public format, and what a broken one is told."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file

from mmrl.models import load_model
from mmrl.models.loading import save_model
from mmrl.models.network.core import MaskedTokenModel
from tests.models.networks import CONFIG, FIXTURES, small_network

PUBLIC = FIXTURES / "llada"
EMBEDDING, HEAD = "model.transformer.wte.weight", "model.transformer.ff_out.weight"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(small_network(), tmp_path / "saved")
    return tmp_path / "saved"


def rewrite(directory: Path, **changes: object) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))


def same_weights(one: MaskedTokenModel, other: MaskedTokenModel) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def test_a_public_checkpoint_saved_again_holds_the_same_tensors_and_configuration(
    tmp_path: Path,
) -> None:
    save_model(load_model(PUBLIC, dtype="bfloat16"), tmp_path)
    before, after = (load_file(p / "model.safetensors") for p in (PUBLIC, tmp_path))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    public = json.loads((PUBLIC / "config.json").read_text())
    found = json.loads((tmp_path / "config.json").read_text())
    assert found == public


def test_shards_with_an_index_load_as_one_file_which_replaces_them(saved: Path) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    assert len(list(saved.glob("*.safetensors"))) > 1
    assert same_weights(load_model(saved), small_network())
    save_model(small_network(3), saved)
    assert [path.name for path in saved.glob("*.safetensors*")] == ["model.safetensors"]
    assert same_weights(load_model(saved), small_network(3))


def test_a_missing_shard_and_one_outside_the_folder_are_named(saved: Path) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    index = saved / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    for name in ("../secret.safetensors", "/etc/passwd"):
        index.write_text(json.dumps({"weight_map": {**content["weight_map"], HEAD: name}}))
        with pytest.raises(ValueError, match="a shard must be a file"):
            load_model(saved)
    index.write_text(json.dumps(content))
    lost = sorted(saved.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=lost.name):
        load_model(saved)
    index.write_text("{}")
    with pytest.raises(ValueError, match=r"index\.json"):
        load_model(saved)


def test_the_vocabulary_is_as_large_as_the_tensors_whatever_the_configuration_says(
    saved: Path,
) -> None:
    rewrite(saved, vocab_size=30, embedding_size=64)
    model = load_model(saved)
    assert model.core.vocab_size == 40
    assert {model.public_config[key] for key in ("vocab_size", "embedding_size")} == {40}


def test_a_tied_head_is_stored_once_and_loads_tied(tmp_path: Path) -> None:
    model = small_network(tied_head=True)
    model.public_config = {**CONFIG, "weight_tying": True}
    save_model(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert HEAD not in tensors
    loaded = load_model(tmp_path)
    assert loaded.head.weight is loaded.embed.weight
    assert torch.equal(loaded.embed.weight, model.embed.weight)
    save_file({**tensors, HEAD: tensors[EMBEDDING].clone()}, tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path).head.weight, model.embed.weight)


@pytest.mark.parametrize("damage", ["truncated", "misshaped", "stray"])
def test_damage_in_the_last_shard_is_known_before_any_tensor_is_read(
    damage: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_torch_state_dict(load_file(saved / "model.safetensors"), saved, max_shard_size=20_000)
    last = sorted(saved.glob("*.safetensors"))[-1]
    tensors = load_file(last)
    name = next(iter(tensors))
    if damage == "truncated":
        last.write_bytes(last.read_bytes()[:-1])
    elif damage == "misshaped":
        save_file({**tensors, name: tensors[name][:-1]}, last)
    else:
        save_file({**tensors, "stray": torch.zeros(1)}, last)
    unread = "mmrl.models.weights.read_rows"
    monkeypatch.setattr(unread, lambda *_: pytest.fail("tensors read"))
    named = {"truncated": last.name, "misshaped": name, "stray": "1 unexpected: stray"}[damage]
    with pytest.raises(ValueError, match=named):
        load_model(saved)


def test_a_directory_without_weights_or_configuration_is_named(saved: Path) -> None:
    (saved / "model.safetensors").rename(saved / "weights.pt")
    with pytest.raises(FileNotFoundError, match="no weights"):
        load_model(saved)
    (saved / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_model(saved)
    with pytest.raises(FileNotFoundError, match="nowhere.*neither an existing directory"):
        load_model(saved / "nowhere")
