"""Reading the weights of sharded networks: each process its part of every tensor, from the files.

The whole model is in the memory of no process: before it is sharded the network is on the meta
device, see `mmrl.models.weights`. With FSDP2 a part is rows of a tensor. DeepSpeed divides tensors
that a process has whole, so with ZeRO-3 they are read and divided one by one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from mmrl.models.network.network import Network, find_networks
from mmrl.models.weights import StoredWeights

Read = Callable[[StoredWeights, str, Any], Any]
"""Returns a parameter like one on the meta device, with this process's part of a tensor."""


def read_shards(model: nn.Module, device: torch.device) -> None:
    """Read this process's part of the networks in a model, sharded by rows, whose weights are not
    read yet. Parameters that are not sharded are read whole, and those that are not on the meta
    device stay as they are."""

    def read(stored: StoredWeights, name: str, parameter: nn.Parameter) -> nn.Parameter:
        if not isinstance(parameter, DTensor):
            return read_whole(stored, name, parameter)
        local = torch.empty_like(parameter.to_local(), device=device)
        # equal shares, but of the last processes less where these do not divide the rows
        mesh, rows = parameter.device_mesh, len(parameter)
        [[*_, place]] = (mesh.mesh == torch.distributed.get_rank()).nonzero().tolist()
        first = min(place * -(-rows // mesh.shape[-1]), rows)
        stored.copy_rows(name, slice(first, first + len(local)), local)
        size = {"shape": parameter.shape, "stride": parameter.stride()}
        value = DTensor.from_local(local, mesh, parameter.placements, run_check=False, **size)
        return nn.Parameter(value, parameter.requires_grad)

    replace_unread(model, read)


def read_whole(stored: StoredWeights, name: str, tensor: Tensor) -> Any:
    """A parameter or buffer like one on the meta device, with all of a tensor."""
    whole = torch.empty_like(tensor, device=stored.device)
    stored.copy_rows(name, slice(None), whole)
    return nn.Parameter(whole, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else whole


@torch.no_grad()
def replace_unread(model: nn.Module, read: Read) -> None:
    """Replace each parameter and buffer on the meta device of the networks in a model; tied weights
    stay one parameter, and every process holds whole buffers."""
    for network in (each for each in find_networks(model) if each.stored is not None):
        done: dict[Tensor, Tensor] = {}
        for name, held, own, tensor in list_unread(network):
            if tensor not in done:
                own_part = read if isinstance(tensor, nn.Parameter) else read_whole
                done[tensor] = own_part(network.stored, name, tensor)
            held[own] = done[tensor]
        network.stored = None


def list_unread(network: Network) -> Iterator[tuple[str, dict[str, Any], str, Tensor]]:
    """The core's name, what holds it, the name there and the value of each parameter and buffer
    that is on the meta device."""
    for layer, module in network.named_modules():
        for held in (module._parameters, module._buffers):
            for own, tensor in held.items():
                if tensor is not None and tensor.is_meta:
                    name = f"{layer}.{own}".removeprefix(".").replace(".base_layer.", ".")
                    yield name, held, own, tensor


def divide_parameters(model: nn.Module, settings: Mapping[str, Any]) -> None:
    """Leave this process its slice of every parameter, by the settings of DeepSpeed; all processes
    call this. Weights that are not read yet are read; of others, the first process's are taken."""
    from deepspeed.runtime.zero.partition_parameters import Init

    # with a module, DeepSpeed also replaces the linear function by one that keeps no gathered
    # weights for the backward pass
    divider: Any = Init(module=nn.Module(), config_dict_or_path=dict(settings))

    def read(stored: StoredWeights, name: str, parameter: nn.Parameter) -> nn.Parameter:
        whole = read_whole(stored, name, parameter)
        divider._convert_to_zero_parameters([whole])
        return whole

    replace_unread(model, read)
    divider._convert_to_zero_parameters(list(model.parameters()))
