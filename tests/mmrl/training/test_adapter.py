"""The layers of an adapter compute what peft's do, can be switched off and merged."""

import copy

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from torch import Generator, Tensor

from mmrl.pretrained.model_config import LoraConfig
from mmrl.training.adapter import InPlaceLora, add_adapter
from tests.models.networks import small_network

THREE = torch.randint(40, (3, 12), generator=Generator().manual_seed(1))


@pytest.fixture
def moved() -> PeftModel:
    """A network whose adapters have moved from their start."""
    model = add_adapter(small_network(qkv_bias=True), LoraConfig(r=4), seed=0)
    draw = Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=draw)
    return model


def with_peft_layers(model: PeftModel) -> PeftModel:
    """The same model with peft's own layers."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if isinstance(module, InPlaceLora):
            module.__class__ = Linear
    return plain


def gradients(model: PeftModel) -> list[Tensor]:
    model(input_ids=THREE).logits.square().mean().backward()
    return [p.grad for p in model.parameters() if p.requires_grad]


def test_outputs_and_gradients_are_those_of_peft(moved: PeftModel) -> None:
    plain = with_peft_layers(moved)
    difference = moved(input_ids=THREE).logits - plain(input_ids=THREE).logits
    assert difference.abs().max() < 1e-4
    for ours, expected in zip(gradients(moved), gradients(plain), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_the_adapter_can_be_switched_off_and_merged(moved: PeftModel) -> None:
    with moved.disable_adapter():
        off = moved(input_ids=THREE).logits
    assert torch.equal(off, small_network(qkv_bias=True)(input_ids=THREE).logits)
    on = moved(input_ids=THREE).logits
    assert (on - off).abs().max() > 1e-2
    moved.merge_adapter()
    torch.testing.assert_close(moved(input_ids=THREE).logits, on, atol=1e-4, rtol=0)
