"""Reading the weights of sharded networks: each process its part of every tensor, from the files.

The whole model is in the memory of no process: before it is sharded the network is on the meta
device, see `mmrl.models.weights`.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from mmrl.models.network.network import Network
from mmrl.models.weights import StoredWeights

Read = Callable[[StoredWeights, str, nn.Parameter], nn.Parameter]
"""Returns a parameter like one on the meta device, with this process's part of a tensor."""


def read_shards(model: nn.Module, device: torch.device) -> None:
    """Read this process's part of the networks in a model whose weights are not read yet.

    Args:
        model: sharded by rows; parameters that are not sharded are read whole, and those that are
            not on the meta device stay as they are.
        device: of the shards.
    """

    def read(stored: StoredWeights, name: str, parameter: nn.Parameter) -> nn.Parameter:
        sharded = isinstance(parameter, DTensor)
        rows = find_rows(parameter) if sharded else slice(None)
        held = parameter.to_local() if sharded else parameter
        local = torch.empty_like(held, device=device if sharded else stored.device)
        stored.copy_rows(name, rows, local)
        return _replace(parameter, local)

    replace_unread(model, read)


@torch.no_grad()
def replace_unread(model: nn.Module, read: Read) -> None:
    """Replace each parameter on the meta device of the networks in a model; tied weights stay one
    parameter."""
    for network in [module for module in model.modules() if isinstance(module, Network)]:
        if network.stored is None:
            continue
        done: dict[Tensor, nn.Parameter] = {}
        for name, module, own, parameter in list_unread(network):
            if parameter not in done:
                done[parameter] = read(network.stored, name, parameter)
            module._parameters[own] = done[parameter]
        network.stored = None


def list_unread(network: Network) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    """The core's name, the module, the name there and the value of each parameter that is on the
    meta device."""
    for layer, module in network.named_modules():
        for own, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                name = f"{layer}.{own}".removeprefix(".").replace(".base_layer.", ".")
                yield name, module, own, parameter


def find_rows(shard: DTensor) -> slice:
    """The rows of the whole tensor that this process holds; processes have equal shares, but the
    last ones less where they do not divide the rows."""
    mesh, total = shard.device_mesh, shard.shape[0]
    [place] = (mesh.mesh == torch.distributed.get_rank()).nonzero().tolist()
    for dim, placement in enumerate(shard.placements):
        if isinstance(placement, Shard):
            share = -(-total // mesh.size(dim))
            first = min(place[dim] * share, total)
            return slice(first, min(first + share, total))
    return slice(0, total)


def _replace(parameter: nn.Parameter, local: Tensor) -> nn.Parameter:
    """A parameter like one on the meta device, with values: the whole, or the rows of a shard."""
    value: Tensor = local
    if isinstance(parameter, DTensor):
        whole = {"run_check": False, "shape": parameter.shape, "stride": parameter.stride()}
        value = DTensor.from_local(local, parameter.device_mesh, parameter.placements, **whole)
    return nn.Parameter(value, requires_grad=parameter.requires_grad)
