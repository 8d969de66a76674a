"""LoRA by peft, on layers named by their role (arXiv 2106.09685)."""

from pathlib import Path
from typing import Any

import peft
import torch
from peft.tuners.lora import Linear
from peft.utils.integrations import dequantize_module_weight
from torch import Tensor, nn

from mmrl.config import check_choice
from mmrl.models.adapter_weights import (
    ADAPTER_WEIGHTS,
    OPTIONS,
    load_factors,
    load_full,
    locate_adapter,
    read_adapter,
)
from mmrl.models.families import names_of
from mmrl.models.network.network import Network
from mmrl.models.source import LORA, find_base
from mmrl.pretrained.known import adapter_directory
from mmrl.pretrained.model_config import LoraConfig
from mmrl.randomness import generator


def add_adapter(network: Network, settings: LoraConfig, seed: int, path: str = "") -> nn.Module:
    """Freeze the network (but a value head) and put an adapter on every layer of the chosen roles.

    Roles are mapped to the core's own layer names, so no checkpoint dialect can leave some out. The
    first factor is drawn from a generator named by the seed; the second is zero, so the policy
    starts as it was. `path` is that of the checkpoint, which the adapter names as its base, or of
    the adapter that is continued, of whose base the network is. Raises ConfigError: a role that no
    layer of the network has."""
    options = {name: getattr(settings, name) for name in OPTIONS}
    for role in settings.target_modules:
        check_choice("model.lora.target_modules", role, network.layer_roles)
    names = network.list_layers(settings.target_modules)
    continued, stored = adapter_directory(path), {}
    if continued is not None:
        stored = read_adapter(continued, names_of(network))
        continue_full(network, continued, stored)
    config = peft.LoraConfig(**options, target_modules=names)
    if not getattr(network, "is_loaded_in_4bit", False):  # peft has layers for those
        config._register_custom_module({nn.Linear: InPlaceLora})
    model = peft.get_peft_model(network, config)  # type: ignore[arg-type]
    [config] = model.peft_config.values()  # type: ignore[assignment]
    config.base_model_name_or_path = name_base(path, continued)
    if network.stored is not None:
        place_adapter(network)
    draw_adapter(network, seed)
    if continued is not None:
        load_factors(network, stored)
    return model


def continue_full(network: Network, directory: Path, tensors: dict[str, Tensor]) -> None:
    """Give a network what an adapter on disk has trained in full, or have it read from there."""
    if network.stored is None:
        load_full(network, tensors)
        return
    places = locate_adapter(directory, names_of(network))
    file = directory / ADAPTER_WEIGHTS
    network.stored.files |= {n: (file, key) for n, key in places.items() if LORA not in n}


def name_base(path: str, continued: Path | None) -> str | None:
    """What an adapter names as its base: the whole path of a directory, a hub id as it is, and that
    of the adapter that is continued; none for a network of no checkpoint."""
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


class InPlaceLora(Linear):
    """peft's LoRA layer with its product added in place: y = W x, y += (alpha / r) B (A x).

    peft allocates four buffers of the size of the output for every layer, this one a single buffer.
    On a long row they are most of the transient memory of an update, and on a CPU, whose allocator
    cannot return them between those kept for the backward pass, they add up over the layers. peft
    still computes everything but the plain case.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """x [..., in] -> [..., out]."""
        if args or kwargs or not self._is_plain(x):
            return super().forward(x, *args, **kwargs)
        [name] = self.active_adapters
        # flat, because adding in place to a view would copy its gradient
        rows = x.reshape(-1, x.shape[-1])
        result = self.base_layer(rows)
        low = self.lora_A[name](rows).to(result.dtype)
        weight = self.lora_B[name].weight.to(result.dtype)
        result.addmm_(low, weight.T, alpha=self.scaling[name])
        return result.view(*x.shape[:-1], -1)

    def _is_plain(self, x: Tensor) -> bool:
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return False
        [name] = self.active_adapters
        if name not in self.lora_A or name in self.lora_variant:
            return False
        weight = self.lora_A[name].weight
        return x.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type)
