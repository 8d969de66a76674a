"""Sizes of the policy of a run, from its config.json, and whether rollouts gather all of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch

from mmrl.models.families import get_family
from mmrl.models.network.network import Network
from mmrl.models.quantization import list_quantized
from mmrl.preflight.public_sizes import BYTES
from mmrl.preflight.state_memory import ModelBytes, count_model, gather_share
from mmrl.rl_config import RLConfig
from mmrl.runtime.computation import choose_planned
from mmrl.runtime.placement import Placement
from mmrl.runtime.sharding.rollout_weights import (
    choose_rollout_weights,
    explain_rollout_weights,
)
from mmrl.training.trainable import trained_in_full


def outline_policy(raw: Mapping[str, Any]) -> Network:
    """The network of a config.json on the meta device."""
    with torch.device("meta"):
        return get_family(raw).network(raw)


def count_policy(config: RLConfig, network: Network, placement: Placement) -> ModelBytes:
    """Sizes of the policy of a run; an adapter is beside its weights."""
    size = BYTES[config.model.dtype]
    found = choose_planned(config, placement, dtype=config.model.dtype)
    _, adapter = count_trained(config, network)
    model = count_model(list_tensors(config, network), config.optimizer, size, adapter * 4)
    return replace(model, gathered=gather_share(found.bf16, found.torch_compile, size))


def list_tensors(config: RLConfig, network: Network) -> list[tuple[str, float, float]]:
    """Name, bytes of the weight, and bytes of its gradient, 0 where it is not trained; of what is
    loaded beside the network in one."""
    size = BYTES[config.model.dtype]
    own = {id(p) for p in trained_in_full(network, config.model).values()}
    tensors: list[tuple[str, float, float]] = [
        (name, p.numel() * size, p.numel() * size * (id(p) in own))
        for name, p in network.named_parameters()
    ]
    return [*tensors, ("parts", network.count_parts() * size - _saved(config, network), 0.0)]


def count_trained(config: RLConfig, network: Network) -> tuple[int, int]:
    """Bytes of the weights that are trained in full, and parameters of an adapter, which peft holds
    in float32 where weights are in half precision."""
    lora, size = config.model.lora, BYTES[config.model.dtype]
    full = sum(p.numel() for p in trained_in_full(network, config.model).values()) * size
    return full, 0 if lora is None else adapter_size(network, lora.r, lora.target_modules)


def adapter_size(network: Network, rank: int, roles: list[str]) -> int:
    """Parameters of a LoRA adapter of a rank on the layers of some roles."""
    ends = tuple(end for role in roles for end in network.layer_roles[role])
    layers = [module for name, module in network.named_modules() if name.endswith(ends)]
    return sum(rank * (m.in_features + m.out_features) for m in layers)  # type: ignore[operator]


def _saved(config: RLConfig, network: Network) -> float:
    """Bytes that weights in 4 bits take less."""
    if config.model.quantization_config is None:
        return 0
    state, names = network.state_dict(), list_quantized(network)
    bits = 8 * BYTES[config.model.dtype] - config.model.quantization_config.bits
    return sum(state[name].numel() for name in names) * bits / 8


def count_weights(raw: Mapping[str, Any]) -> int:
    """Parameters of the network of a config.json, and of what is loaded beside it."""
    network = outline_policy(raw)
    return sum(p.numel() for p in network.parameters()) + network.count_parts()


def plan_rollout_weights(
    config: RLConfig, model: ModelBytes, placement: Placement
) -> Literal["whole", "by_block"]:
    """What `rollout_weights` comes to; on a device that is not known, by block."""
    memory = placement.memory or 0.0
    return choose_rollout_weights(config.rollout_weights, model.weights + model.adapter, memory)


def explain_plan(config: RLConfig, raw: Mapping[str, Any], placement: Placement) -> str | None:
    """What `rollout_weights` comes to, and why; None where every process has all weights."""
    if placement.way not in ("fsdp2", "zero3"):
        return None
    model = count_policy(config, outline_policy(raw), placement)
    size = model.weights + model.adapter
    return explain_rollout_weights(config.rollout_weights, size, placement.memory)
