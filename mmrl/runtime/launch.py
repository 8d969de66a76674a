"""The processes that this one was launched with.

The launcher passes its configuration file on as environment variables. They are read here because
`Accelerator` drops those of FSDP on the CPU, and fails on those of DeepSpeed without that package.
"""

import os
import signal
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, gather_object, patch_environment


def find_accelerator() -> torch.device | None:
    """The device that runs compute on besides the CPU; None without one, where the CPU is asked
    for, and for Metal, which has no float64, in which tokens are drawn."""
    found = torch.accelerator.current_accelerator(check_available=True)
    usable = found is not None and found.type != "mps" and not is_set("ACCELERATE_USE_CPU")
    return found if usable else None


def use_device(name: str) -> None:
    """Let this process compute on the CPU, if that is its setting `device`; accelerate and
    `find_accelerator` follow."""
    if name == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"


def join_processes(timeout: timedelta | None = None, **options: Any) -> Accelerator:
    """Join the processes that this one was launched with; `timeout` of communication between them,
    None for torch's, and options of `Accelerator`."""
    # without a device, launched processes find each other only where the CPU is asked for, or with
    # DeepSpeed, which accelerate leaves out on the CPU, where a backend is
    cpu, deepspeed = find_accelerator() is None, find_sharding() == "DEEPSPEED"
    backend = {"backend": "gloo"} if cpu and deepspeed else {}
    if backend:
        leave_out_kernels()
    group = InitProcessGroupKwargs(timeout=timeout, **backend)
    # accelerate refuses groups of processes on the CPU; `mmrl.runtime.sharding` forms them itself
    with patch_environment(ACCELERATE_USE_PARALLELISM_CONFIG="false"):
        accelerator = Accelerator(cpu=cpu and not deepspeed, kwargs_handlers=[group], **options)
    if deepspeed:
        # with stage 3 accelerate makes transformers divide among processes whatever it reads,
        # as the network of a reward (seen in 1.15)
        from transformers.integrations.deepspeed import unset_hf_deepspeed_config

        unset_hf_deepspeed_config()
    return accelerator


def end_with_launcher() -> None:
    """Ask Linux to send a launched process SIGTERM when its launcher is killed."""
    from torch import multiprocessing

    if count_processes() > 1:
        multiprocessing._prctl_pr_set_pdeathsig(signal.SIGTERM)  # pyright: ignore


def leave_out_kernels() -> None:
    """Keep DeepSpeed from compiling collectives for the CPU, where gloo has them: that takes a
    compiler and fails in a folder with spaces in its name."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def is_set(variable: str, absent: str = "false") -> bool:
    """Whether the launcher has set a flag."""
    return os.environ.get(variable, absent).lower() in ("true", "1")


def find_sharding() -> str | None:
    """`distributed_type` of an accelerate configuration that shards a model; None without."""
    if is_set("ACCELERATE_USE_DEEPSPEED"):
        return "DEEPSPEED"
    return "FSDP" if is_set("ACCELERATE_USE_FSDP") else None


def read_zero() -> tuple[str, ...]:
    """The stage of DeepSpeed's ZeRO, and the devices that moments and weights are offloaded to."""
    keys = {"ZERO_STAGE": "2", "OFFLOAD_OPTIMIZER_DEVICE": "none", "OFFLOAD_PARAM_DEVICE": "none"}
    return tuple(os.environ.get(f"ACCELERATE_DEEPSPEED_{key}", keys[key]) for key in keys)


def count_processes() -> int:
    """The number of processes that the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def any_process(flag: bool) -> bool:
    """Whether the flag is set on any process; all processes call this."""
    return any(gather_object([flag]))
