"""Where a launch places the tensors of a run: on devices, whole or in parts, or in host memory."""

import os
from dataclasses import dataclass
from typing import Literal

import psutil
import torch

from mmrl.runtime.devices import Device
from mmrl.runtime.launch import count_processes, find_accelerator, find_sharding, is_set, read_zero

Way = Literal["whole", "fsdp2", "zero2", "zero3"]


@dataclass(frozen=True)
class Placement:
    """How the processes of a launch share a model: `whole` on every device (one process, or DDP),
    or one copy divided among `shards` of them, fewer than `world_size` where it is replicated
    across nodes; optimiser and gradients, or the weights too, in the memory of the host.

    `device` is the type of the device, with so many bytes of `memory`, None where that is not here;
    `named` the device itself, where it is planned for and not found."""

    way: Way = "whole"
    world_size: int = 1
    shards: int = 1
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


def read_placement(world_size: int | None = None, named: Device | None = None) -> Placement:
    """The placement of the launch that set the environment variables of this process, or of so many
    processes; on a `named` device to plan for, or else that of this machine."""
    size = world_size or count_processes()
    found = find_accelerator() or torch.device("cpu")
    elsewhere = found.type == "cpu" and not is_set("ACCELERATE_USE_CPU", "true")
    kind = "cuda" if elsewhere or named else found.type
    memory = float(device_memory(found)) if kind == found.type else None
    memory = named.memory if named else memory
    way, shards, optimizer, weights = _read_way(size)
    return Placement(way, size, shards, optimizer, weights, kind, memory, named)


def _read_way(size: int) -> tuple[Way, int, bool, bool]:
    """Way, processes that share a copy, and whether optimiser and weights are offloaded."""
    kind = find_sharding()
    if kind == "FSDP":
        mesh = is_set("ACCELERATE_USE_PARALLELISM_CONFIG")
        copies = int(os.environ.get("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "1")) if mesh else 1
        offload = is_set("FSDP_OFFLOAD_PARAMS")
        return "fsdp2", size // copies, offload, offload
    if kind == "DEEPSPEED":
        stage, *offloads = read_zero()
        optimizer, weights = (place != "none" for place in offloads)
        return "zero3" if stage == "3" else "zero2", size, optimizer, weights
    return "whole", 1, False, False


def device_memory(device: torch.device) -> int:
    """Bytes of memory of a device; on the CPU this process's share of the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
