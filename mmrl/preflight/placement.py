"""Where a launch places the tensors of a run: on devices, whole or in parts, or in host memory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from mmrl.config import ConfigError

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
    """

    way: Way = "whole"
    world_size: int = 1
    shards: int = 1
    per_host: int = 1
    offload_optimizer: bool = False
    offload_weights: bool = False
    device: str = "cpu"
    memory: float | None = None

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
        copies = self.world_size // self.shards
        text = f"{count}, {names[self.way]} among {self.shards}"
        text += f", {copies} replicas" if copies > 1 else ""
        kinds = {"weights": self.offload_weights, "optimiser": self.offload_optimizer}
        kept = " and ".join(name for name, offloaded in kinds.items() if offloaded)
        return text + (f", {kept} in host memory" if kept else "")


ALONE = Placement()
"""One process on a CPU."""


def read_placement(
    variables: Mapping[str, str] = os.environ,
    world_size: int | None = None,
    device: str | None = None,
) -> Placement:
    """The placement of the launch that set some environment variables.

    Args:
        variables: those that `accelerate launch` passes on.
        world_size: number of processes; None for those of the launch.
        device: type of the device; None for that of this machine.
    """
    import torch

    from mmrl.runtime.sharding.rollout_weights import device_memory

    size = world_size or int(variables.get("WORLD_SIZE", "1"))
    found = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    planned = not _is_set(variables, "ACCELERATE_USE_CPU", "true") and found.type == "cpu"
    kind = device or ("cuda" if planned else found.type)  # planned for another machine
    memory = float(device_memory(found)) if kind == found.type else None
    common = {"per_host": int(variables.get("LOCAL_WORLD_SIZE", size)), "device": kind}
    place = partial(Placement, world_size=size, memory=memory, **common)
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


@contextmanager
def use_launch(path: str | None) -> Iterator[None]:
    """Set the environment variables inside the context that `accelerate launch --config_file PATH`
    would set; None sets nothing.

    Raises:
        ConfigError: there is no such file, or accelerate does not accept it.
    """
    before = dict(os.environ)
    try:
        if path is not None:
            os.environ.update(read_config_file(path))
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def read_config_file(path: str) -> dict[str, str]:
    """The environment variables of a process that accelerate launches with a configuration file.

    Raises:
        ConfigError: there is no such file, or accelerate does not accept it.
    """
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    if not Path(path).is_file():
        raise ConfigError(
            f"launch_config is '{path}', which is no file. Name one, such as"
            " configs/accelerate/fsdp2.yaml."
        )
    try:
        words = ["--config_file", path, "--main_process_port", "0", "-m", "mmrl.rl"]
        arguments, *_ = launch._validate_launch_command(
            launch.launch_command_parser().parse_args(words)
        )
        if arguments.use_deepspeed:
            arguments.deepspeed_fields_from_accelerate_config = ""  # set by the launcher's main
            _, variables = prepare_deepspeed_cmd_env(arguments)
        else:
            variables = prepare_multi_gpu_env(arguments)
    except (ValueError, TypeError, AttributeError, SystemExit) as error:
        raise ConfigError(
            f"launch_config is '{path}', which accelerate refuses: {error}"
        ) from error
    processes, machines = int(arguments.num_processes or 1), int(arguments.num_machines or 1)
    variables |= {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes // machines),
        "ACCELERATE_USE_CPU": str(bool(arguments.cpu or arguments.use_cpu)),
    }
    if "CUDA_VISIBLE_DEVICES" in os.environ:  # the plan is made with the devices of this process
        variables["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    else:
        variables.pop("CUDA_VISIBLE_DEVICES", None)
    return variables


def _is_set(variables: Mapping[str, str], name: str, absent: str = "false") -> bool:
    return variables.get(name, absent).lower() in ("true", "1")
