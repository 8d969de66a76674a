"""Whole tensors from shards, and shards of whole tensors.

A process holds of a parameter all of it, its shard as a `DTensor` (FSDP2), or with ZeRO-3 a slice
of its elements. Such a slice is a plain tensor [n] whose attribute `parameter` says what it is of.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import recursively_apply
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def gather_whole(value: Any, keep: bool = True) -> Any:
    """A nested state with copies of whole tensors, on the CPU, in place of shards; called on all
    processes. With `keep` False None for each: a process that only gives its shards needs no
    memory."""

    def gather(part: Tensor) -> Tensor | None:
        whole = gather_slices(part) if hasattr(part, "parameter") else part
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        # also of what is gathered: it may be a part of a larger, padded tensor
        return whole.to("cpu", copy=True) if keep else None

    return recursively_apply(gather, value)


def take_part(tensor: Tensor, target: Tensor) -> Tensor:
    """A whole tensor as `target` is held: this process's shard of it, or itself."""
    if hasattr(target, "parameter"):
        return slice_whole(tensor, target)
    if not isinstance(target, DTensor) or tensor.shape != target.shape:
        return tensor
    part = distribute_tensor(tensor, target.device_mesh, target.placements, src_data_rank=None)
    return part.clone()  # or it would keep the whole tensor in memory


def held_part(parameter: Tensor) -> Tensor:
    """What this process holds of a parameter; it shares its memory."""
    partition = getattr(parameter, "ds_tensor", None)
    return parameter.data if partition is None else _mark(partition.data, parameter)


def copy_part(parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of what this process holds of a parameter."""
    part = held_part(parameter)
    copy = part.detach().clone().to(dtype or part.dtype)
    return _mark(copy, parameter) if hasattr(part, "parameter") else copy


@torch.no_grad()
def write_part(part: Tensor, value: Tensor) -> None:
    """Change what `held_part` returned, or a copy of it; all processes call this.

    What ZeRO-3 has gathered of the parameter is no longer so, and freed.
    """
    part.copy_(value)
    parameter: Any = getattr(part, "parameter", None)
    if parameter is not None and parameter.ds_status.name == "AVAILABLE":
        parameter.partition()
        if parameter.ds_persist:
            parameter.all_gather()


def gather_slices(part: Any) -> Tensor:
    """The whole of which each process holds a slice."""
    size = part.numel() * torch.distributed.get_world_size()  # the last slices are padded
    whole = torch.empty(size, dtype=part.dtype, device=PartialState().device)
    torch.distributed.all_gather_into_tensor(whole, part.data.to(whole.device))
    return whole[: part.parameter.ds_numel].view(part.parameter.ds_shape)


def slice_whole(tensor: Tensor, target: Any) -> Tensor:
    """This process's slice of a whole tensor, padded as `target` is."""
    if tensor.shape != target.parameter.ds_shape:
        raise ValueError(f"{tuple(tensor.shape)} does not fit {tuple(target.parameter.ds_shape)}")
    start = torch.distributed.get_rank() * target.numel()
    own = tensor.reshape(-1)[start : start + target.numel()]
    return nn.functional.pad(own, (0, target.numel() - own.numel()))


def _mark(part: Any, parameter: Tensor) -> Tensor:
    part.parameter = parameter
    return part


@contextmanager
def use_state(module: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """Make the module's `state_dict()` return these tensors alone inside the context."""

    def replace(_: nn.Module, own: dict[str, Tensor], prefix: str, __: Any) -> None:
        for name in [name for name in own if name.startswith(prefix)]:
            del own[name]
        own.update({prefix + name: tensor for name, tensor in state.items()})

    hook = module.register_state_dict_post_hook(replace)
    try:
        yield
    finally:
        hook.remove()
