"""Sharding by FSDP2: every process holds a part of each weight, gradient and optimiser moment.

An accelerate configuration with `fsdp_version: 2` asks for it; a block of the core is one unit,
whole on a device only while it computes. torch's `fully_shard` is called here rather than by
`accelerator.prepare`, which shards nothing on the CPU and allows no second, frozen model.

Gradients are reduced after every micro-batch: what accelerate would keep until the last one are
gradients of the whole model. Moments and checkpoints are whole tensors under the names and places
they have in one process, so a run continues with any number of processes, sharded or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from mmrl.config import ConfigError
from mmrl.features import PromptImage
from mmrl.runtime.interrupt import Interrupted
from mmrl.runtime.launch import is_sharded
from models.network.core import Block
from models.network.vision import Vision

if TYPE_CHECKING:
    from models import Policy


def shard(model: nn.Module, accelerator: Accelerator) -> None:
    """Leave this process its part of every parameter, in place; before the optimiser is built.

    Raises:
        ConfigError: a model without a block of the core, or with weights of 4 bits.
    """
    if not is_sharded(accelerator):
        return
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:
        raise ConfigError(
            f"distributed_type is FSDP in the accelerate configuration and {type(model).__name__}"
            " has no block of the masked-token core to shard. Launch it with"
            " --config_file configs/accelerate/multi_gpu.yaml."
        )
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        raise ConfigError(
            "quantization_config is given and distributed_type is FSDP in the accelerate"
            " configuration: weights of 4 bits are not sharded. Launch it with --config_file"
            " configs/accelerate/multi_gpu.yaml."
        )
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for unit in [*blocks, model]:
        # also the outermost unit, whose weights a forward without backward would leave gathered
        # and which would then miss the next optimiser step
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)


def shard_policy(policy: Policy, accelerator: Accelerator) -> None:
    """`shard` of a policy's model, whose sampling then keeps pace; nothing where it is whole."""
    if is_sharded(accelerator):
        shard(policy.model, accelerator)
        policy.keep_pace = partial(keep_pace, policy.model)


def prepare(
    accelerator: Accelerator, model: nn.Module, optimizers: list[Optimizer]
) -> tuple[nn.Module, list[Any]]:
    """`accelerator.prepare`, which takes the optimisers alone where `shard` did the model."""
    if is_sharded(accelerator):
        return model, [accelerator.prepare_optimizer(optimizer) for optimizer in optimizers]
    prepared = accelerator.prepare(model, *optimizers)
    return prepared[0], list(prepared[1:])


@contextmanager
def keep_pace(model: nn.Module) -> Iterator[None]:
    """Let processes call a sharded model different numbers of times, without gradient.

    A call gathers weights from all processes, so all must take part, and a call that encodes images
    gathers other weights than one that reads tokens. Before each call the processes agree on its
    kind: images, as long as any process has some. A process that needs the other kind, has finished
    or was asked to stop takes part with a blank input, until all have left.
    """
    blanks, along = _blank_calls(model), False
    device = next(model.parameters()).device

    def agreed(mine: int | None) -> int | None:
        wanted = torch.zeros(len(blanks), device=device)
        if mine is not None:
            wanted[mine] = 1
        torch.distributed.all_reduce(wanted)
        return next(iter(wanted.nonzero().flatten().tolist()), None)

    def call_along(kind: int) -> None:
        nonlocal along
        along = True
        with torch.no_grad():
            model(**blanks[kind])
        along = False

    def announce(_: nn.Module, __: Any, arguments: Mapping[str, Any]) -> None:
        mine = _LOOK if arguments.get("images") is not None else _READ
        while not along and (kind := agreed(mine)) not in (mine, None):
            call_along(kind)

    hook = model.register_forward_pre_hook(announce, prepend=True, with_kwargs=True)
    left: Interrupted | None = None
    try:
        yield
    except Interrupted as stop:  # between two calls, so that the others may go on
        left = stop
    finally:
        hook.remove()
    while (kind := agreed(None)) is not None:
        call_along(kind)
    if left is not None:
        raise left


_LOOK, _READ = 0, 1


def _blank_calls(model: nn.Module) -> list[dict[str, Any]]:
    """The smallest image input of a model (empty without a vision tower), and of tokens."""
    device = next(model.parameters()).device
    look: dict[str, Any] = {}
    for vision in (module for module in model.modules() if isinstance(module, Vision)):
        tiling, dot = vision.tiling, Image.new("RGB", (1, 1))
        shown = PromptImage(*dot.size, tiling.count(*dot.size), tiling.rows(*dot.size))
        look = {"images": tiling.cut(dot).to(device), "shown": (shown,)}
    return [look, {"input_ids": torch.zeros(1, 1, dtype=torch.long, device=device)}]


def whole(value: Any, keep: bool = True) -> Any:
    """A nested state with whole tensors, on the CPU, in place of shards; called on all processes.

    Args:
        value: tensors, in dicts and lists.
        keep: False returns None for each: a process that only gives its shards needs no memory.
    """
    if isinstance(value, Mapping):
        return {key: whole(item, keep) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(whole(item, keep) for item in value)
    if not isinstance(value, Tensor):
        return value
    if not isinstance(value, DTensor):
        return value.cpu() if keep else None
    gathered = value.full_tensor()
    # a copy, since what is gathered may be the first rows of a larger, padded tensor
    return gathered.to("cpu", copy=True) if keep else None


def like(tensor: Tensor, target: Tensor) -> Tensor:
    """A whole tensor as `target` is held: this process's shard of it, or itself."""
    if not isinstance(target, DTensor) or tensor.shape != target.shape:
        return tensor
    part = distribute_tensor(tensor, target.device_mesh, target.placements, src_data_rank=None)
    return part.clone()  # or it would keep the whole tensor in memory


def assign(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into those of the same names, as these are held.

    Raises:
        ValueError: the names are not the same.
    """
    if targets.keys() != values.keys():
        raise ValueError(f"{len(targets)} tensors are trained here, {len(values)} are stored")
    for name, target in targets.items():
        target.copy_(like(values[name], target))


def load_moments(optimizer: Any, state: dict[str, Any]) -> None:
    """Load an optimiser's `state_dict` of whole tensors, counted as in one process.

    Raises:
        ValueError: it is of another number of parameters.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    stored = sum(len(group["params"]) for group in state["param_groups"])
    if stored != len(parameters):
        raise ValueError(f"{len(parameters)} tensors are optimised here, {stored} are stored")
    moments = {
        place: {
            name: like(value, parameters[place]) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for place, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})


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
