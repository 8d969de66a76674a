"""Runs with a base of 4-bit weights: what is quantised, trained, saved and refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, nn

from mmrl.config import ConfigError
from mmrl.models import load_model, load_policy
from mmrl.models.loading import save_model
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.rl import train
from mmrl.training.adapter import add_adapter
from tests.mmrl.runs import LORA, VQ, World, metrics, run_config, same_weights, write_world
from tests.models.networks import small_network

bitsandbytes = pytest.importorskip("bitsandbytes")
NF4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
NF4 |= {"bnb_4bit_compute_dtype": "bfloat16"}
IDS = torch.randint(40, (2, 9), generator=Generator().manual_seed(1))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A tiny world whose layers are as wide as a block of 4-bit weights."""
    return write_world(tmp_path_factory.mktemp("wide"), width=64)


def network_of(**changes: Any) -> MaskedTokenModel:
    """A small network whose layers are as wide."""
    network = small_network(hidden_size=64, head_dim=16, mlp_size=128, **changes)
    network.public_config |= {"d_model": 64, "mlp_hidden_size": 128}
    return network


def four_bits(**options: Any) -> dict[str, Any]:
    return {"quantization_config": QuantizationConfig(**options)}


def test_the_linear_layers_of_the_blocks_are_quantised_and_nothing_else(tmp_path: Path) -> None:
    network = network_of(qkv_bias=True)
    network.public_config["include_qkv_bias"] = True
    save_model(network, tmp_path)
    exact = load_model(tmp_path)
    found = load_model(tmp_path, **four_bits(bnb_4bit_quant_type="nf4"))
    for name, module in exact.named_modules():
        other = found.get_submodule(name)
        if isinstance(module, nn.Linear) and name != "head":
            assert type(other) is bitsandbytes.nn.Linear4bit and other.weight.dtype == torch.uint8
            state = other.weight.quant_state
            values = bitsandbytes.functional.dequantize_4bit(other.weight.data, state)
            error = (values - module.weight).abs().max() / module.weight.abs().max()
            assert 0 < error < 0.2 and (module.bias is None or torch.equal(other.bias, module.bias))
            module.weight.data = values
    kept = {n: p for n, p in found.named_parameters() if p.is_floating_point()}
    assert {"embed.weight", "head.weight", "norm.weight"} <= kept.keys()
    assert all(torch.equal(p, dict(exact.named_parameters())[n]) for n, p in kept.items())
    with torch.no_grad():
        rounded, ours = exact(input_ids=IDS).logits, found(input_ids=IDS).logits
    torch.testing.assert_close(ours, rounded, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("variant", [{}, {"use_dora": True}])
def test_an_adapter_on_quantised_layers_is_that_of_peft_and_starts_as_nothing(
    tmp_path: Path, variant: dict
) -> None:
    save_model(network_of(), tmp_path)
    network = load_model(tmp_path, **four_bits(**NF4))
    with torch.no_grad():
        start = network(input_ids=IDS).logits
        model = add_adapter(network, LoraConfig(r=4, **variant), seed=0, path=str(tmp_path))
        kinds = {
            type(layer).__name__ for layer in network.blocks.modules() if hasattr(layer, "lora_A")
        }
        assert kinds == {"Linear4bit"}
        torch.testing.assert_close(model(input_ids=IDS).logits, start, atol=1e-5, rtol=0)
    model(input_ids=IDS).logits.square().mean().backward()
    moved = [n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()]
    assert moved and all(".lora_" in name for name in moved)


@pytest.mark.slow
def test_a_run_on_quantised_weights_has_ratios_of_one_and_resumes_exactly(
    wide: World, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"lora": LORA, "model": four_bits(**NF4)}
    changes |= {"algorithm": {"num_iterations": 1, "beta": 0.1}, "max_steps": 2, "save_steps": 1}
    train(run_config(wide, tmp_path / "whole", **changes))
    lines = metrics(tmp_path / "whole")
    assert [line["ratio"] for line in lines] == [1.0, 1.0] and lines[0]["kl"] == 0
    assert lines[1]["kl"] > 0
    train(run_config(wide, tmp_path / "parts", **{**changes, "max_steps": 1}))
    train(run_config(wide, tmp_path / "parts", resume_from_checkpoint="auto", **changes))
    assert same_weights(tmp_path / "whole" / "final", tmp_path / "parts" / "final")
    assert metrics(tmp_path / "parts") == lines
    load_policy(tmp_path / "whole" / "final", VQ)  # on the weights of full precision


def test_what_four_bits_cannot_do_is_refused_by_name(wide: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.quantization_config is 'given'.* model\.lora"):
        run_config(wide, tmp_path, model=four_bits())
    with pytest.raises(ConfigError, match="merge_adapter is True.*scripts/merge_adapter"):
        run_config(wide, tmp_path, lora=LORA, model=four_bits(), merge_adapter=True)
    save_model(small_network(), tmp_path)
    with pytest.raises(ValueError, match="32 values, no multiple of 64: bitsandbytes computes"):
        load_model(tmp_path, **four_bits())
    model = ModelConfig(
        path=wide.policy, vq=None, lora=LoraConfig(), modules_to_train=["blocks.1"], **four_bits()
    )
    with pytest.raises(ConfigError, match=r"modules_to_train is 'blocks.1'.*quantization_config"):
        check_checkpoints(Known.read(model))
