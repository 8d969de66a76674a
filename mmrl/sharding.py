"""Sharding by FSDP2: every process holds a part of each weight, gradient and optimiser moment.

An accelerate configuration with `fsdp_version: 2` asks for it; a block of the core is one unit,
whole on a device only while it computes. torch's `fully_shard` is called here rather than by
`accelerator.prepare`, which shards nothing on the CPU and allows no second, frozen model.

Gradients are reduced after every micro-batch: what accelerate would keep until the last one are
gradients of the whole model. Moments and checkpoints are whole tensors under the names and places
they have in one process, so a run continues with any number of processes, sharded or not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from mmrl.config import ConfigError, check
from models.core import Block

_REFUSED = {
    "ACCELERATE_USE_DEEPSPEED": ("distributed_type", "DEEPSPEED"),
    "ACCELERATE_USE_MEGATRON_LM": ("distributed_type", "MEGATRON_LM"),
    "ACCELERATE_USE_PARALLELISM_CONFIG": ("parallelism_config", "set"),
}
"""Variable of accelerate's launcher -> key and value of its configuration file."""

_FIXED = {
    "FSDP_VERSION": ("2", "1"),
    "FSDP_AUTO_WRAP_POLICY": ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
    "FSDP_TRANSFORMER_CLS_TO_WRAP": (Block.__name__, ""),
    "FSDP_RESHARD_AFTER_FORWARD": ("true", "true"),
    "FSDP_OFFLOAD_PARAMS": ("false", "false"),
    "FSDP_ACTIVATION_CHECKPOINTING": ("false", "false"),
    "ACCELERATE_MIXED_PRECISION": ("no", "no"),
}
"""Variable of the launcher -> what it must be, and what it is when absent."""

_ADVICE = {
    "FSDP_ACTIVATION_CHECKPOINTING": "Set model.gradient_checkpointing=true instead.",
    "ACCELERATE_MIXED_PRECISION": "Set bf16=true of the run instead.",
}
_FILE = "Launch with --config_file configs/accelerate/fsdp2.yaml, which shards the model by FSDP2"


def check_launch(optimizer: str) -> None:
    """Check accelerate's configuration, as its launcher hands it on.

    Args:
        optimizer: name of the optimiser of the run.

    Raises:
        ConfigError: a way of sharding that is not supported, or not with this optimiser.
    """
    for variable, (key, value) in _REFUSED.items():
        if _flag(variable):
            raise ConfigError(
                f"{key} is {value} in the accelerate configuration; it must be FSDP with"
                f" fsdp_version 2, or MULTI_GPU, where every device holds the whole model. {_FILE}."
            )
    if _flag("ACCELERATE_USE_FSDP"):
        for variable, (wanted, absent) in _FIXED.items():
            value = os.environ.get(variable, absent)
            key = variable.removeprefix("ACCELERATE_").lower()
            key = key.replace("_transformer_cls_", "_transformer_layer_cls_")
            advice = _ADVICE.get(variable, f"{_FILE}.")
            check(value.lower() == wanted.lower(), key, value, f"{wanted} to shard", advice)
        check(
            optimizer == "adamw", "optimizer", optimizer, "adamw where the model is sharded",
            "Others need whole matrices: configs/accelerate/multi_gpu.yaml leaves them whole.",
        )  # fmt: skip


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether the processes of this run share one copy of the model."""
    launched = accelerator.distributed_type != DistributedType.NO
    return launched and _flag("ACCELERATE_USE_FSDP")


def takes_part(accelerator: Accelerator) -> bool:
    """Whether this process is needed to save: the main one, or all where each holds a part."""
    return accelerator.is_main_process or is_sharded(accelerator)


def shard(model: nn.Module, accelerator: Accelerator) -> None:
    """Leave this process its part of every parameter, in place; before the optimiser is built.

    Raises:
        ConfigError: a model without a block of the core.
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
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    for unit in [*blocks, model]:
        # also the outermost unit, whose weights a forward without backward would leave gathered
        # and which would then miss the next optimiser step
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)


def prepare(
    accelerator: Accelerator, model: nn.Module, optimizers: list[Optimizer]
) -> tuple[nn.Module, list[Any]]:
    """`accelerator.prepare`, which takes the optimisers alone where `shard` did the model."""
    if is_sharded(accelerator):
        return model, [accelerator.prepare_optimizer(optimizer) for optimizer in optimizers]
    prepared = accelerator.prepare(model, *optimizers)
    return prepared[0], list(prepared[1:])


@contextmanager
def keeping_pace(model: nn.Module) -> Iterator[None]:
    """Meanwhile processes may call a sharded model differently often, without gradient.

    A call gathers weights from all processes, so none may stay away. Before each call a process
    asks whether anyone still calls; one that has finished calls along until nobody does.
    """
    device = next(model.parameters()).device

    def anyone_calls(mine: bool) -> bool:
        calls = torch.tensor(float(mine), device=device)
        torch.distributed.all_reduce(calls)
        return bool(calls)

    def announce(*_: Any) -> None:
        anyone_calls(True)

    hook = model.register_forward_pre_hook(announce, prepend=True)
    try:
        yield
    finally:
        hook.remove()
    while anyone_calls(False):
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device))


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


def load_moments(optimizer: Any, state: dict[str, Any]) -> None:
    """Load an optimiser's `state_dict` of whole tensors, counted as in one process."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moments = {
        place: {
            name: like(value, parameters[place]) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for place, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})


@contextmanager
def stored_as(module: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """Meanwhile the module's `state_dict()` gives these tensors."""
    hook = module.register_state_dict_post_hook(
        lambda _, own, prefix, __: own.update({prefix + name: t for name, t in state.items()})
    )
    try:
        yield
    finally:
        hook.remove()


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1")
