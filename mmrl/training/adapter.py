"""LoRA by peft, on layers named by their role (arXiv 2106.09685)."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from mmrl.models.adapter_source import find_base
from mmrl.models.adapter_weights import LORA, Adapter, read_adapter
from mmrl.models.families import get_family
from mmrl.models.loading import public_names
from mmrl.models.network.network import Network
from mmrl.pretrained.known import adapter_directory
from mmrl.pretrained.model_config import LoraConfig
from mmrl.randomness import generator
from mmrl.training.adapter_dropout import replace_dropout

PEFT_OPTIONS = ("r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora")
"""Options of `LoraConfig` that peft's has under the same names."""


def add_adapter(network: Network, settings: LoraConfig, seed: int, path: str = "") -> nn.Module:
    """Freeze the network (but a value head) and put an adapter on every layer of the chosen roles.

    Roles are mapped to the core's own layer names, so no checkpoint dialect can leave some out.
    The first factor is drawn from a generator named by the seed; the second is zero, so the policy
    starts as it was.

    Args:
        network: of the checkpoint, or of the base of the adapter that is continued.
        settings: of the adapter.
        seed: of the run.
        path: directory or hub id of the checkpoint, which the adapter names as its base, or of the
            adapter that is continued.
    """
    import peft

    from mmrl.training.lora_layer import InPlaceLora

    options = {name: getattr(settings, name) for name in PEFT_OPTIONS}
    names = sorted({n for role in settings.target_modules for n in network.layer_roles[role]})
    continued = adapter_directory(path)
    config = peft.LoraConfig(**options, target_modules=names)
    if not getattr(network, "is_loaded_in_4bit", False):  # peft has layers for those
        config._register_custom_module({nn.Linear: InPlaceLora})
    model = peft.get_peft_model(network, config)  # type: ignore[arg-type]
    [config] = model.peft_config.values()  # type: ignore[assignment]
    config.base_model_name_or_path = name_base(path, continued)
    if network.value_head is not None:
        network.value_head.requires_grad_(True)
    if settings.lora_dropout:
        replace_dropout(network, settings.lora_dropout)
    if network.stored is not None:
        place_adapter(network)
    draw_adapter(network, seed)
    if continued is not None:
        copy_adapter(network, continued)
    return model


def name_base(path: str, continued: Path | None) -> str | None:
    """What an adapter names as its base: the whole path of a directory, a hub id as it is.

    Args:
        path: of the checkpoint; empty for a network of none.
        continued: directory of the adapter that is continued, whose base it keeps.
    """
    base = path if continued is None else str(find_base(continued))
    local = Path(base).expanduser()
    return str(local.resolve()) if base and local.is_dir() else base or None


@torch.no_grad()
def place_adapter(network: Network) -> None:
    """Allocate an adapter of zeros, which peft leaves on the meta device beside such weights."""
    for name, module in network.named_modules():
        if LORA in name:
            module.to_empty(device=network.device, recurse=False)
            for parameter in module.parameters(recurse=False):
                parameter.zero_()


@torch.no_grad()
def draw_adapter(network: Network, seed: int) -> None:
    """Draw the first factors of an adapter from a generator named by the seed."""
    from peft.utils.integrations import dequantize_module_weight

    draw = generator(seed, "adapter")
    for name, parameter in network.named_parameters():
        if "lora_A" in name:
            bound = (3.0 / parameter.shape[1]) ** 0.5
            start = torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw)
            parameter.data.copy_(start)
        elif "lora_magnitude_vector" in name:
            # peft has rounded it to the precision of the weight, which would move the policy
            layer = name.partition(LORA)[0]
            if network.stored is None:
                module: Any = network.get_submodule(layer)
                weight = dequantize_module_weight(module.get_base_layer())
            else:
                weight = network.stored.read(f"{layer}.weight").to(parameter.device)
            parameter.data = weight.to(parameter.dtype).norm(dim=1)


@torch.no_grad()
def copy_adapter(network: Network, directory: Path) -> None:
    """Give a network with peft's layers the tensors of an adapter on disk."""
    state = {name.replace(".base_layer.", "."): p for name, p in network.named_parameters()}
    own = {name: p for name, p in state.items() if LORA not in name}
    keys = get_family(network.public_config).KEYS
    adapter = read_adapter(directory, public_names(own, network.tied, keys))
    if network.stored is not None:  # to be read in the place of those of the base
        network.stored.adapter = Adapter({}, adapter.full, 1.0)
    for name, tensor in adapter.full.items() if network.stored is None else ():
        own[name].copy_(tensor)
    for layer, parts in adapter.layers.items():
        module: Any = network.get_submodule(layer)
        module.lora_A["default"].weight.copy_(parts["A"])
        module.lora_B["default"].weight.copy_(parts["B"])
        if "magnitude" in parts:
            module.lora_magnitude_vector["default"].weight.copy_(parts["magnitude"])
