"""Which weights are trained: patterns over names of parameters and modules, or a LoRA adapter.

Without patterns everything is trained but the vision tower; with an adapter, the adapter alone.
Patterns name what is trained instead, and with an adapter what is trained in full beside it, as
peft's `modules_to_save` are.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor, nn

from mmrl.models.quantization import count_parameters
from mmrl.models.source import LORA
from mmrl.pretrained.model_config import ModelConfig, matches, part_of
from mmrl.runtime.sharding.sharding import Sharding
from mmrl.runtime.sharding.tensors import copy_part, held_part, write_part
from mmrl.training.adapter import add_adapter

if TYPE_CHECKING:
    from mmrl.models.network.network import Network


def train_parts(network: Network, model: ModelConfig, seed: int) -> nn.Module:
    """Freeze what is not trained, and put an adapter on the network where one is wanted; return
    the network, wrapped where it has an adapter."""
    full = trained_in_full(network, model)  # names change with an adapter
    module = network if model.lora is None else add_adapter(network, model.lora, seed, model.path)
    own = {id(p) for p in full.values()}
    for name, parameter in network.named_parameters():
        if LORA not in name:
            parameter.requires_grad_(id(parameter) in own)
    return module


def trained_in_full(network: Network, model: ModelConfig) -> dict[str, nn.Parameter]:
    """The parameters that are trained themselves."""
    every = dict(network.named_parameters())
    tower = [network.tower] if model.train_vision_tower else []
    if model.modules_to_train is None and model.lora is None:
        chosen = {name for name, p in every.items() if p.requires_grad or matches(name, tower)}
    else:
        wanted = [*(model.modules_to_train or ()), *tower]
        chosen = {name for name in every if matches(name, wanted)}
    chosen -= network.unread
    return {name: every[name] for name in every if name in chosen}


def shared_parameters(
    network: Network, model: ModelConfig, sharded: bool = False
) -> dict[int, nn.Parameter]:
    """Parameters by `id` that a copy of a network can share before `train_parts`, as the memo of
    `deepcopy`: those that are never trained, such as a frozen tower. Of a network that is to be
    sharded all are: shards are copies, and a second whole network need not fit the device."""
    trained = {} if sharded else trained_in_full(network, model)
    return {id(p): p for name, p in network.named_parameters() if name not in trained}


def freeze_copy(network: Network, model: ModelConfig, sharding: Sharding) -> Network:
    """A frozen copy of what will be trained, on the rest of the network's own weights."""
    frozen = copy.deepcopy(network, shared_parameters(network, model, sharding.gathers))
    sharding.shard(frozen, trained=False)
    frozen.requires_grad_(False).eval()
    frozen.set_attention(model.attn_implementation)
    return frozen


def count_parts(network: nn.Module) -> dict[str, list[int]]:
    """The trained and all parameters of every part of a network, and of all of it: `total`."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, parameter in network.named_parameters():
        for key in ("adapter" if LORA in name else part_of(name), "total"):
            counts[key][0] += parameter.numel() * parameter.requires_grad
            counts[key][1] += count_parameters(parameter)
    counts["total"] = counts.pop("total")  # last
    return counts


def copy_start(network: nn.Module, adapter: bool = False) -> dict[str, Tensor]:
    """Copies of what is trained in full beside an adapter, which a reference policy needs; with
    `adapter` of that as well."""
    return {
        name: copy_part(parameter)
        for name, parameter in network.named_parameters()
        if parameter.requires_grad and (adapter or LORA not in name)
    }


@contextmanager
def swap_values(network: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Give some parameters other values inside the context; no graph may cross the swap."""
    parameters = {name: p for name, p in network.named_parameters() if name in values}
    own = {name: copy_part(p) for name, p in parameters.items()}

    def write(those: Mapping[str, Tensor]) -> None:
        for name, parameter in parameters.items():
            write_part(held_part(parameter), those[name])

    try:
        write(values)
        yield
    finally:
        write(own)
