"""Whole tensors from shards, and shards of whole tensors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def gather_whole(value: Any, keep: bool = True) -> Any:
    """A nested state with copies of whole tensors, on the CPU, in place of shards; called on all
    processes.

    Args:
        value: tensors, in dicts and lists.
        keep: False returns None for each: a process that only gives its shards needs no memory.
    """
    if isinstance(value, Mapping):
        return {key: gather_whole(item, keep) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(gather_whole(item, keep) for item in value)
    if not isinstance(value, Tensor):
        return value
    if not isinstance(value, DTensor):
        return value.to("cpu", copy=True) if keep else None
    gathered = value.full_tensor()
    # what is gathered may be the first rows of a larger, padded tensor
    return gathered.to("cpu", copy=True) if keep else None


def take_part(tensor: Tensor, target: Tensor) -> Tensor:
    """A whole tensor as `target` is held: this process's shard of it, or itself."""
    if not isinstance(target, DTensor) or tensor.shape != target.shape:
        return tensor
    part = distribute_tensor(tensor, target.device_mesh, target.placements, src_data_rank=None)
    return part.clone()  # or it would keep the whole tensor in memory


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
