"""Where a launch places the tensors of a run: on devices, whole or in parts, or in host memory."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mmrl.runtime.devices import Device

Way = Literal["whole", "fsdp2", "zero2", "zero3"]


@dataclass(frozen=True)
class Placement:
    """How the processes of a launch share a model.

    Attributes:
        way: `whole` on every device (one process, or DDP), or sharded.
        world_size: number of processes.
        shards: processes among which one copy of the model is divided; fewer than `world_size`
            where it is replicated across nodes.
        per_host: processes of one machine.
        offload_optimizer: whether optimiser and gradients are in the memory of the host.
        offload_weights: whether the weights are too.
        device: type of the device.
        memory: bytes of the device; None where that is not here.
        named: the device, where it is planned for and not found.
    """

    way: Way = "whole"
    world_size: int = 1
    shards: int = 1
    per_host: int = 1
    offload_optimizer: bool = False
    offload_weights: bool = False
    device: str = "cpu"
    memory: float | None = None
    named: Device | None = None

    @property
    def replicas(self) -> int:
        """Copies of a model that is sharded, one for each group of processes."""
        return self.world_size // self.shards

    @property
    def buckets(self) -> bool:
        """Whether gradients are reduced in copies of all of them, as DDP does."""
        return self.way == "whole" and self.world_size > 1

    @property
    def weights_apart(self) -> bool:
        """Whether weights are offloaded to a memory that is not the device's own."""
        return self.device != "cpu" and self.offload_weights

    @property
    def state_apart(self) -> bool:
        """Whether optimiser and gradients are offloaded to a memory that is not the device's."""
        return self.device != "cpu" and self.offload_optimizer

    def __str__(self) -> str:
        count = f"{self.world_size} process{'' if self.world_size == 1 else 'es'}"
        names = {"fsdp2": "FSDP2", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
        if self.way == "whole":
            return f"{count}, each with the whole model"
        text = f"{count}, {names[self.way]} among {self.shards}"
        text += f", {self.replicas} replicas" if self.replicas > 1 else ""
        kinds = {"weights": self.offload_weights, "optimiser": self.offload_optimizer}
        kept = " and ".join(name for name, offloaded in kinds.items() if offloaded)
        return text + (f", {kept} in host memory" if kept else "")


ALONE = Placement()
"""One process on a CPU."""


def read_placement(
    variables: Mapping[str, str] = os.environ,
    world_size: int | None = None,
    device: str | None = None,
    named: Device | None = None,
) -> Placement:
    """The placement of the launch that set some environment variables.

    Args:
        variables: those that `accelerate launch` passes on.
        world_size: number of processes; None for those of the launch.
        device: type of the device; None for that of this machine.
        named: a device to plan for in the place of that of this machine.
    """
    import torch

    from mmrl.runtime.sharding.rollout_weights import device_memory

    size = world_size or int(variables.get("WORLD_SIZE", "1"))
    found = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    planned = not _is_set(variables, "ACCELERATE_USE_CPU", "true") and found.type == "cpu"
    kind = device or ("cuda" if planned or named else found.type)  # planned for another machine
    memory = float(device_memory(found)) if kind == found.type else None
    memory = named.memory if named else memory
    common = {"per_host": int(variables.get("LOCAL_WORLD_SIZE", size)), "device": kind}
    place = partial(Placement, world_size=size, memory=memory, named=named, **common)
    if _is_set(variables, "ACCELERATE_USE_FSDP"):
        mesh = _is_set(variables, "ACCELERATE_USE_PARALLELISM_CONFIG")
        copies = int(variables.get("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "1")) if mesh else 1
        offload = _is_set(variables, "FSDP_OFFLOAD_PARAMS")
        return place(
            way="fsdp2",
            shards=size // copies,
            offload_optimizer=offload,
            offload_weights=offload,
        )
    if _is_set(variables, "ACCELERATE_USE_DEEPSPEED"):
        stage = variables.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
        names = ("OPTIMIZER", "PARAM")
        values = [variables.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE") for name in names]
        optimizer, weights = (value not in (None, "none") for value in values)
        return place(
            way="zero3" if stage == "3" else "zero2",
            shards=size,
            offload_optimizer=optimizer,
            offload_weights=weights,
        )
    return place()


def _is_set(variables: Mapping[str, str], name: str, absent: str = "false") -> bool:
    return variables.get(name, absent).lower() in ("true", "1")
