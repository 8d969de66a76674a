"""LoRA by peft, on layers named by their role (arXiv 2106.09685)."""

import torch
from torch import Tensor, nn

from mmrl.model_config import ROLES, LoraConfig
from mmrl.randomness import generator
from mmrl.runtime.sharding import whole
from models.network.core import MaskedTokenModel


def add_adapter(network: MaskedTokenModel, settings: LoraConfig, seed: int) -> nn.Module:
    """Freeze the network (but a value head) and put an adapter on every layer of the chosen roles.

    Roles are mapped to the core's own layer names, so no checkpoint dialect can leave some out.
    The first factor is drawn from a generator named by the seed; the second is zero, so the policy
    starts as it was.
    """
    import peft

    from mmrl.training.lora_layer import InPlaceLora

    names = [ROLES[role] for role in settings.target_modules]
    config = peft.LoraConfig(r=settings.r, lora_alpha=settings.lora_alpha, target_modules=names)
    config._register_custom_module({nn.Linear: InPlaceLora})
    model = peft.get_peft_model(network, config)  # type: ignore[arg-type]
    if network.value_head is not None:
        network.value_head.requires_grad_(True)
    draw = generator(seed, "adapter")
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            bound = (3.0 / parameter.shape[1]) ** 0.5
            start = torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw)
            parameter.data.copy_(start)
    return model


@torch.no_grad()
def plain_state(network: nn.Module, keep: bool = True) -> dict[str, Tensor]:
    """The network's whole tensors under their own names, adapters' products added to the weights.

    The weights in memory stay as they are: adding and subtracting would round them.

    Args:
        network: with or without adapters; where it is sharded, all processes call this.
        keep: whether this process wants the tensors, see `whole`.
    """
    from peft.tuners.lora import Linear

    state = {}
    for name, tensor in network.state_dict().items():
        if ".lora_" not in name:
            state[name.replace(".base_layer.", ".")] = tensor
    for layer, module in network.named_modules():
        if isinstance(module, Linear):
            weight = state[f"{layer}.weight"]
            deltas = [module.get_delta_weight(name).float() for name in module.active_adapters]
            # on the CPU, one layer at a time: a second copy of the weights need not fit the device
            state[f"{layer}.weight"] = whole(sum(deltas, weight.float()).to(weight.dtype), keep)
    return whole(state, keep)
