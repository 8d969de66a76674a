"""What is trained is what the configuration names, with and without an adapter."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_model
from mmrl.models.loading import outline
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import copy_start, swap_values, train_parts
from tests.models.networks import write_small_llada_v


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_llada_v(tmp_path_factory.mktemp("sight"))


def trained(directory: Path, **model: Any) -> set[str]:
    """The trained parameters, those of an adapter as one."""
    network = outline(directory)
    train_parts(network, ModelConfig(path=str(directory), vq=None, **model), seed=0)
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    return {"adapter" if ".lora_" in name else name.replace(".base_layer", "") for name in names}


def named(directory: Path, *prefixes: str) -> set[str]:
    names = {name for name, _ in outline(directory).named_parameters()}
    unread = {name for name in names if "post_layernorm" in name}
    return {name for name in names if name.startswith(prefixes)} - unread


def test_without_patterns_everything_is_trained_but_the_tower(directory: Path) -> None:
    tower, everything = named(directory, "vision.tower"), named(directory, "")
    assert trained(directory) == everything - tower
    assert trained(directory, train_vision_tower=True) == everything
    assert trained(directory, lora=LoraConfig(r=2)) == {"adapter"}


@pytest.mark.parametrize("lora", [None, LoraConfig(r=2)])
def test_patterns_name_modules_and_parameters_and_join_an_adapter(
    directory: Path, lora: LoraConfig | None
) -> None:
    chosen = ["vision.projector", "blocks.*.attn_norm", "norm.weight"]
    expected = {name for name in named(directory, "blocks") if "attn_norm" in name}
    expected |= named(directory, "vision.projector", "norm.weight")
    expected |= {"adapter"} if lora else set()
    assert trained(directory, modules_to_train=chosen, lora=lora) == expected
    tower = named(directory, "vision.tower")
    options = {"modules_to_train": chosen, "train_vision_tower": True, "lora": lora}
    assert trained(directory, **options) == expected | tower
    assert trained(directory, modules_to_train=["vision*"], lora=lora) >= tower


def test_patterns_that_name_nothing_and_towers_that_are_not_there_are_refused(
    directory: Path, tmp_path: Path
) -> None:
    def check(**model: Any) -> None:
        check_checkpoints(Known.read(ModelConfig(path=str(directory), vq=None, **model)))

    check(modules_to_train=["vision.projector"])
    for wrong in ("projector", "vision.tower.post_layernorm"):
        with pytest.raises(ConfigError, match=rf"modules_to_train is '{wrong}'.* It has embed, bl"):
            check(modules_to_train=[wrong])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llada"}))
    blind = ModelConfig(path=str(tmp_path), vq=None, train_vision_tower=True)
    with pytest.raises(ConfigError, match="a checkpoint with a vision tower to train its vision"):
        check_checkpoints(Known.read(blind))


def test_an_exchange_lasts_as_long_as_it_is_wanted(directory: Path) -> None:
    network = load_model(directory)
    model = ModelConfig(lora=LoraConfig(r=2), modules_to_train=["vision.projector"])
    train_parts(network, model, seed=0)
    start = copy_start(network)
    weight = dict(network.named_parameters())["vision.projector.0.weight"]
    assert set(start) == named(directory, "vision.projector")
    before = weight.detach().clone()
    weight.data += 1
    with swap_values(network, start):
        assert torch.equal(weight, before)
    assert torch.equal(weight, before + 1)
