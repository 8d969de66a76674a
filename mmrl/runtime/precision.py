"""How one network computes: under bfloat16 autocast, with float32 weights, compiled."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate.utils import convert_outputs_to_fp32
from torch import nn


def widen(network: nn.Module, everything: bool = False) -> None:
    """Hold the trained weights of a network in float32, where optimisers sum small updates, one
    converted at a time; `everything` converts the others too, for a run that does not compute under
    autocast."""
    for parameter in network.parameters():
        half = parameter.dtype in (torch.bfloat16, torch.float16)
        if half and (everything or parameter.requires_grad):
            parameter.data = parameter.data.float()


def keep_casts(device: torch.device) -> torch.autocast:
    """A context in which autocast converts each float32 weight once and not in every forward pass.

    For passes without gradient between which no weight changes; it holds a copy of the weights in
    bfloat16. Outside of `autocast_forward` nothing is computed in another precision than before.
    """
    kind = device.type
    dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    return torch.autocast(kind, dtype=dtype, enabled=enabled)


def share_casts(policy: Any, device: torch.device) -> AbstractContextManager[Any]:
    """`keep_casts` for the steps of a sampler, where each process has all weights of the policy."""
    return nullcontext() if policy.shares_forwards else keep_casts(device)


def autocast_forward(module: nn.Module, device: torch.device) -> None:
    """Run the forward pass of a module under bfloat16 autocast and return float32; losses stay
    outside and are computed in float32."""
    in_bfloat16 = torch.autocast(device.type, dtype=torch.bfloat16)(module.forward)
    module.forward = convert_outputs_to_fp32(in_bfloat16)


def compile_blocks(network: nn.Module, backend: str = "inductor") -> None:
    """Compile every repeated block in place, for all lengths at once; names of tensors stay.

    Blocks rather than the whole network: one short compilation serves all layers, and code that
    depends on data, such as the choice of positions, is not compiled.
    """
    for module in network.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                block.compile(backend=backend, dynamic=True)
