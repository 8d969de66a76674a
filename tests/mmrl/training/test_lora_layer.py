"""The lean LoRA layer computes what peft's does."""

import copy

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from torch import Generator, Tensor

from mmrl.pretrained.model_config import LoraConfig
from mmrl.training.adapter import InPlaceLora, add_adapter
from tests.models.networks import small_network

IDS = torch.randint(40, (3, 12), generator=Generator().manual_seed(1))


@pytest.fixture
def adapted() -> PeftModel:
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
    model(input_ids=IDS).logits.square().mean().backward()
    return [p.grad for p in model.parameters() if p.requires_grad]


def test_outputs_and_gradients_are_those_of_peft(adapted: PeftModel) -> None:
    plain = with_peft_layers(adapted)
    difference = adapted(input_ids=IDS).logits - plain(input_ids=IDS).logits
    assert difference.abs().max() < 1e-4
    for ours, expected in zip(gradients(adapted), gradients(plain), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_the_adapter_can_be_switched_off_and_merged(adapted: PeftModel) -> None:
    with adapted.disable_adapter():
        off = adapted(input_ids=IDS).logits
    assert torch.equal(off, small_network(qkv_bias=True)(input_ids=IDS).logits)
    on = adapted(input_ids=IDS).logits
    assert (on - off).abs().max() > 1e-2
    adapted.merge_adapter()
    torch.testing.assert_close(adapted(input_ids=IDS).logits, on, atol=1e-4, rtol=0)
