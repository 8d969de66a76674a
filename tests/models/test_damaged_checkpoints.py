"""What no checkpoint may hold is refused when it is loaded: which file, which tensor or key."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmrl.models import load_model, load_policy, load_vq
from mmrl.models.families.llada import KEYS
from mmrl.models.loading import save_model
from mmrl.models.weights import check_finite
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.models.networks import small_network, write_small_mmada

HEAD = KEYS["head.weight"]
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


def rewrite(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 4097])
def test_one_value_that_is_not_finite_is_found_wherever_it_is(
    dtype: torch.dtype, size: int
) -> None:
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
    change(folder / "model.safetensors", HEAD, put(value))
    with pytest.raises(ValueError, match=f"model.safetensors': {HEAD} as torch.float32 holds"):
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
        "network": (folder / "model.safetensors", HEAD, load_model),
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
    rewrite(folder / "config.json", **changes)
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
    rewrite(folder / "vq" / "config.json", **changes)
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
    rewrite(tmp_path / "config.json", **changes)
    for check in (
        lambda path: load_policy(path, vq=None),
        lambda path: check_checkpoints(Known.read(ModelConfig(path=str(path), vq=None))),
    ):
        with pytest.raises(ValueError, match=named):
            check(tmp_path)
