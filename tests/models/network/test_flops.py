"""Operations are those that torch counts where nothing is padding, and fewer where something is."""

from typing import Any

import pytest
import torch
from peft.tuners.lora import Linear
from torch.utils.flop_counter import FlopCounterMode

from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.flops import (
    Adapter,
    count_backward,
    count_forward,
    measure_pass,
    row_sizes,
)
from mmrl.pretrained.model_config import LoraConfig
from mmrl.training.adapter import InPlaceLora, add_adapter
from tests.models.networks import small_network

ROWS, LENGTH, WANTED = 3, 11, 4


def network_of(**changes: Any) -> MaskedTokenModel:
    """A small network with attention from matrix products, which torch counts on a CPU as well."""
    network = small_network(**changes)
    network.set_attention("eager")
    return network


def arguments(**changes: Any) -> dict[str, Any]:
    tokens = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % 39
    positions = torch.arange(LENGTH).expand(ROWS, -1) >= LENGTH - WANTED
    return {"input_ids": tokens, "positions": positions, "columns": (5, 25), **changes}


def counted(model: Any, given: dict[str, Any], backward: bool) -> tuple[int, int]:
    """What torch counts forward and backward."""
    with FlopCounterMode(display=False) as forward, torch.set_grad_enabled(backward):
        logits = model(**given).logits
    if not backward:
        return forward.get_total_flops(), 0
    with FlopCounterMode(display=False) as mode:
        logits.sum().backward()
    return forward.get_total_flops(), mode.get_total_flops()


@pytest.mark.parametrize("heads", [4, 2])
def test_a_pass_with_everything_trained_is_what_torch_counts(heads: int) -> None:
    network = network_of(num_kv_heads=heads)
    size = measure_pass(network.core, **arguments())
    assert size == row_sizes(ROWS, LENGTH, WANTED, 20)
    expected = count_forward(network.core, size), count_backward(network.core, size)
    assert counted(network, arguments(), True) == expected


def test_a_pass_with_an_adapter_is_what_torch_counts() -> None:
    network = network_of()
    adapted, adapter = add_adapter(network, LoraConfig(r=3), seed=0), Adapter(3)
    for module in adapted.modules():
        if isinstance(module, InPlaceLora):  # torch does not count products that are added in place
            module.__class__ = Linear
    size = measure_pass(network.core, **arguments())
    expected = [count(network.core, size, adapter) for count in (count_forward, count_backward)]
    assert list(counted(adapted, arguments(), True)) == expected


def test_a_pass_with_a_cache_is_what_torch_counts() -> None:
    network, cache = network_of(), network_of().new_cache()
    counted(network, arguments(cache=cache.at(0, LENGTH, LENGTH)), False)
    cache.at(LENGTH - WANTED, LENGTH, LENGTH)
    given = arguments(cache=cache)
    given |= {name: given[name][:, -WANTED:] for name in ("input_ids", "positions")}
    size = measure_pass(network.core, **given)
    assert size == row_sizes(ROWS, LENGTH, WANTED, 20, computed=WANTED)
    assert counted(network, given, False)[0] == count_forward(network.core, size)
