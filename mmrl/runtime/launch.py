"""Checks of the accelerate configuration with which this process was launched.

The launcher passes its configuration file on as environment variables. They are read here because
`Accelerator` drops those of FSDP on the CPU, and fails on those of DeepSpeed without that package.
"""

import os
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import (
    DistributedType,
    InitProcessGroupKwargs,
    gather_object,
    patch_environment,
)

from mmrl.config import ConfigError, check
from mmrl.runtime.compilation import check_compiler
from mmrl.runtime.deepspeed_launch import check_deepspeed, leave_out_kernels, uses_deepspeed

_REFUSED = {
    "ACCELERATE_USE_MEGATRON_LM": ("distributed_type", "MEGATRON_LM"),
}
"""Unsupported: variable of the launcher -> key and value of its configuration file."""

_FIXED = {
    "FSDP_VERSION": ("2", "1"),
    "FSDP_AUTO_WRAP_POLICY": ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
    "FSDP_TRANSFORMER_CLS_TO_WRAP": ("Block", ""),
    "FSDP_RESHARD_AFTER_FORWARD": ("true", "true"),
    "FSDP_ACTIVATION_CHECKPOINTING": ("false", "false"),
    "ACCELERATE_MIXED_PRECISION": ("no", "no"),
}
"""Variable of the launcher -> its required value, and its value when absent."""

_UNUSED = ("TP_SIZE", "CP_SIZE", "SP_SIZE")
"""Sizes of a `parallelism_config` that must be 1."""
_ADVICE = {
    "FSDP_ACTIVATION_CHECKPOINTING": "Set model.gradient_checkpointing=true instead.",
    "ACCELERATE_MIXED_PRECISION": "bf16=auto of the run, or bf16=true, decides instead.",
}
_FILE = "Launch with --config_file configs/accelerate/fsdp2.yaml, which shards the model by FSDP2"


def join_processes(timeout: timedelta | None = None, **options: Any) -> Accelerator:
    """Join the processes that this one was launched with.

    Args:
        timeout: of communication between them; None for torch's.
        **options: of `Accelerator`.
    """
    # without a device, launched processes find each other only where the CPU is asked for, or with
    # DeepSpeed, which accelerate leaves out on the CPU, where a backend is
    cpu, deepspeed = not torch.accelerator.is_available(), uses_deepspeed()
    backend = {"backend": "gloo"} if cpu and deepspeed else {}
    if backend:
        leave_out_kernels()
    group = InitProcessGroupKwargs(timeout=timeout, **backend)
    # accelerate refuses groups of processes on the CPU; `mmrl.runtime.sharding` forms them itself
    with patch_environment(ACCELERATE_USE_PARALLELISM_CONFIG="false"):
        return Accelerator(cpu=cpu and not deepspeed, kwargs_handlers=[group], **options)


def check_launch(optimizer: str = "adamw", torch_compile: Any = False) -> None:
    """Check the accelerate configuration that the launcher has passed on.

    Args:
        optimizer: name of the optimiser of the run.
        torch_compile: see `check_compiler`.

    Raises:
        ConfigError: a kind of sharding that is not supported, or not with this optimiser; or no
            compiler.
    """
    check_compiler(torch_compile)
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
        _check_mesh()
    if uses_deepspeed():
        check_deepspeed(torch_compile)
    _check_optimizer(optimizer)


def _check_optimizer(optimizer: str) -> None:
    """Raise a ConfigError for an optimiser that cannot work on shards, or on this device."""
    if _flag("ACCELERATE_USE_FSDP") or uses_deepspeed():
        advice = "configs/accelerate/multi_gpu.yaml leaves the model whole on every device."
        reason = "Muon needs whole matrices" if optimizer == "muon" else "It needs whole tensors"
        allowed = "adamw or sgd where the model is sharded"
        fits = optimizer in ("adamw", "sgd")
        check(fits, "optimizer", optimizer, allowed, f"{reason}: {advice}")
    # a dry run may plan for another machine, see `mmrl.planning.planned_launch`
    planned = os.environ.get("ACCELERATE_USE_CPU", "true").lower() == "false"
    pages = planned or torch.cuda.is_available()
    allowed = "adamw, adamw_8bit or sgd without a GPU of CUDA"
    advice = "Pages are of CUDA's unified memory."
    check(pages or not optimizer.startswith("paged"), "optimizer", optimizer, allowed, advice)


def find_sharding() -> str | None:
    """`distributed_type` of an accelerate configuration that shards a model; None without."""
    if uses_deepspeed():
        return "DEEPSPEED"
    return "FSDP" if _flag("ACCELERATE_USE_FSDP") else None


def count_processes() -> int:
    """The number of processes that the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_sharded(accelerator: Accelerator) -> bool:
    """Whether the processes of this run share one copy of the model."""
    launched = accelerator.distributed_type != DistributedType.NO
    return launched and _flag("ACCELERATE_USE_FSDP")


def any_process(flag: bool) -> bool:
    """Whether the flag is set on any process; all processes call this."""
    return any(gather_object([flag]))


def _check_mesh() -> None:
    """Raise a ConfigError for a `parallelism_config` that is no FSDP2 with replication."""
    if not _flag("ACCELERATE_USE_PARALLELISM_CONFIG"):
        return
    for size in _UNUSED:
        key = f"parallelism_config_{size.lower()}"
        check(_parallel_size(size) == 1, key, _parallel_size(size), "1, with FSDP2", f"{_FILE}.")
    replicas, shards = _parallel_size("DP_REPLICATE_SIZE"), _parallel_size("DP_SHARD_SIZE")
    processes = count_processes()
    if replicas * shards != processes or shards == 1:
        raise ConfigError(
            f"parallelism_config_dp_replicate_size is {replicas} and"
            f" parallelism_config_dp_shard_size {shards}, for {processes} processes. The first is"
            " usually the number of nodes, the second the number of processes of a node, at least"
            " 2; their product must be the number of processes."
        )


def _parallel_size(name: str) -> int:
    return int(os.environ.get(f"PARALLELISM_CONFIG_{name}", "1"))


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1")
