"""Loading and saving directories in the public format, and what a broken one is told."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmrl.models import load_model, load_policy, load_vq
from mmrl.models.families.llada import KEYS
from mmrl.models.loading import save_model
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.weights import check_finite
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.models.networks import CONFIG, FIXTURES, small_network, write_small_mmada

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


def test_a_public_checkpoint_saved_again_has_the_same_tensors_and_config(tmp_path: Path) -> None:
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


def test_the_vocabulary_is_as_large_as_the_tensors_whatever_the_config_says(saved: Path) -> None:
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


LAST = KEYS["head.weight"]
LORA_A = "base_model.model.model.transformer.blocks.0.q_proj.lora_A.weight"
LLADA = "text/checkpoints/llada"
SHIPPED = Path(__file__).parents[2] / "datasets"
BAD = [math.nan, math.inf, -math.inf]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small_mmada(tmp_path)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    network = small_network()
    save_model(network, tmp_path / "base")
    network = load_model(tmp_path / "base")
    lora = LoraConfig(r=2, lora_alpha=4)
    train_parts(network, ModelConfig(path=str(tmp_path / "base"), lora=lora), seed=0)
    save_model(network, tmp_path / "adapter")
    return tmp_path / "adapter"


def change(file: Path, name: str, make: Callable[[Tensor], Tensor]) -> None:
    """Rewrite a tensor of a file."""
    tensors = load_file(file)
    save_file({**tensors, name: make(tensors[name]).contiguous()}, file, {"format": "pt"})


def put(value: float) -> Callable[[Tensor], Tensor]:
    """Gives a copy whose last value is another."""

    def make(tensor: Tensor) -> Tensor:
        copy = tensor.clone()
        copy.view(-1)[-1] = value
        return copy

    return make


def rewrite_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 4097])
def test_a_value_that_is_not_finite_is_found_wherever_it_is(dtype: torch.dtype, size: int) -> None:
    tensor = torch.full((size,), 2.0**15, dtype=dtype)  # whose sum is too large for float16
    assert check_finite(tensor, Path("f"), "t") is tensor
    for value in BAD:
        for place in {0, size // 2, size - 1}:
            copy = tensor.clone()
            copy[place] = value
            nans = int(math.isnan(value))
            with pytest.raises(ValueError, match=f"'f': t as .* {nans} NaN and {1 - nans} infinit"):
                check_finite(copy, Path("f"), "t")


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("deferred", [False, True])
def test_values_that_are_not_finite_are_refused_by_file_and_tensor(
    value: float, deferred: bool, folder: Path
) -> None:
    change(folder / "model.safetensors", LAST, put(value))
    with pytest.raises(ValueError, match=f"model.safetensors': {LAST} as torch.float32 holds"):
        network = load_model(folder, deferred=deferred)
        held = torch.empty(3, network.width)
        network.stored.copy_rows("head.weight", slice(0, 3), held)  # without the last one
        network.stored.copy_rows("head.weight", slice(-3, None), held)


@pytest.mark.parametrize("place", ["network", "adapter", "image tokenizer"])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (put(math.nan), "as torch.float32 holds 1 NaN"),
        (put(math.inf), "as torch.float32 holds 0 NaN and 1 infinite"),
        (lambda tensor: tensor.to(torch.int8), "is I8; weights are"),
        (lambda tensor: tensor.to(torch.bool), "is BOOL; weights are"),
    ],
)
def test_tensors_are_checked_wherever_they_are(
    make: Callable[[Tensor], Tensor], named: str, place: str, folder: Path, adapter: Path
) -> None:
    file, name, load = {
        "network": (folder / "model.safetensors", LAST, load_model),
        "adapter": (adapter / "adapter_model.safetensors", LORA_A, load_model),
        "image tokenizer": (folder / "vq/model.safetensors", "encoder.conv_in.bias", load_vq),
    }[place]
    change(file, name, make)
    with pytest.raises(ValueError, match=f"{file.name}': {name} {named}"):
        load(file.parent)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_theta": math.nan}, "rope_theta is nan; it must be a finite number"),
        ({"rope_theta": 10**400}, "rope_theta is an integer beyond float64"),
        ({"rope_theta": -3.0}, "rope_theta is -3.0; it must be a number from 1"),
        ({"n_layers": True}, "n_layers is True; it must be a whole number"),
        ({"d_model": 10**30}, "cannot be loaded|expected"),
    ],
)
def test_values_of_config_json_are_refused_by_key(
    changes: dict[str, Any], named: str, folder: Path
) -> None:
    rewrite_json(folder / "config.json", **changes)
    for load in (load_model, lambda path: load_policy(path, vq=None)):
        with pytest.raises(ValueError, match=named) as caught:
            load(folder)
        assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"ch": math.nan}, "ch is nan"), ({"norm_groups": 0}, "no network can be built")],
)
def test_values_of_an_image_tokenizer_are_refused_by_key(
    changes: dict[str, Any], named: str, folder: Path
) -> None:
    rewrite_json(folder / "vq" / "config.json", **changes)
    with pytest.raises(ValueError, match=f"(?s)config.json.*{named}"):
        load_vq(folder / "vq")


@pytest.mark.parametrize(
    ("checkpoint", "tokenizer", "changes", "named"),
    [
        ("shapes/checkpoints/mmada", LLADA, {}, "319 tokens .* 509 llm_vocab_size"),
        ("shapes/checkpoints/llada_v", LLADA, {}, "319 tokens .* 485 vocabulary"),
        (LLADA, "shapes/checkpoints/mmada", {}, "509 tokens .* 319 vocabulary"),
        (LLADA, LLADA, {"eos_token_id": 3, "pad_token_id": 3}, "the end of a text 1 .* .3, 3"),
        (LLADA, LLADA, {"mask_token_id": 17}, "the mask 18 .* mask_token_id 17"),
    ],
)
def test_a_tokenizer_of_another_model_is_refused_with_what_each_of_both_has(
    checkpoint: str, tokenizer: str, changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    shutil.copytree(SHIPPED / checkpoint, tmp_path, dirs_exist_ok=True)
    shutil.copy(SHIPPED / tokenizer / "tokenizer.json", tmp_path)
    rewrite_json(tmp_path / "config.json", **changes)
    for check in (
        lambda path: load_policy(path, vq=None),
        lambda path: check_checkpoints(Known.read(ModelConfig(path=str(path), vq=None))),
    ):
        with pytest.raises(ValueError, match=named):
            check(tmp_path)
