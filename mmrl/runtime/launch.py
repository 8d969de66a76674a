"""Checks of the accelerate configuration with which this process was launched.

The launcher passes its configuration file on as environment variables. They are read here because
`Accelerator` drops those of FSDP on the CPU, and fails on those of DeepSpeed without that package.
"""

import os
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType, gather_object

from mmrl.config import ConfigError, check
from mmrl.runtime.compilation import check_compiler

_REFUSED = {
    "ACCELERATE_USE_DEEPSPEED": ("distributed_type", "DEEPSPEED"),
    "ACCELERATE_USE_MEGATRON_LM": ("distributed_type", "MEGATRON_LM"),
    "ACCELERATE_USE_PARALLELISM_CONFIG": ("parallelism_config", "set"),
}
"""Unsupported: variable of the launcher -> key and value of its configuration file."""

_FIXED = {
    "FSDP_VERSION": ("2", "1"),
    "FSDP_AUTO_WRAP_POLICY": ("TRANSFORMER_BASED_WRAP", "NO_WRAP"),
    "FSDP_TRANSFORMER_CLS_TO_WRAP": ("Block", ""),
    "FSDP_RESHARD_AFTER_FORWARD": ("true", "true"),
    "FSDP_OFFLOAD_PARAMS": ("false", "false"),
    "FSDP_ACTIVATION_CHECKPOINTING": ("false", "false"),
    "ACCELERATE_MIXED_PRECISION": ("no", "no"),
}
"""Variable of the launcher -> its required value, and its value when absent."""

_ADVICE = {
    "FSDP_ACTIVATION_CHECKPOINTING": "Set model.gradient_checkpointing=true instead.",
    "ACCELERATE_MIXED_PRECISION": "bf16=auto of the run, or bf16=true, decides instead.",
}
_FILE = "Launch with --config_file configs/accelerate/fsdp2.yaml, which shards the model by FSDP2"


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
        advice = "Muon needs whole matrices: configs/accelerate/multi_gpu.yaml leaves them whole."
        allowed = "adamw or sgd where the model is sharded"
        check(optimizer != "muon", "optimizer", optimizer, allowed, advice)


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


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() in ("true", "1")
