"""What of an accelerate configuration a run cannot follow.

A run decides precision, clipping, accumulation and the optimiser itself, so what the configuration
says of them is refused rather than ignored.
"""

import importlib.util
import os
import shutil

from mmrl.config import ConfigError, check
from mmrl.runtime.launch import count_processes, find_accelerator, find_sharding, is_set, read_zero

Fixed = dict[str, tuple[str, str, str]]
"""By the variable of the launcher: the key of the configuration, the only value that is followed,
and what to do instead."""
_PRECISION = "mixed_precision", "no", "bf16=auto of the run, or bf16=true, decides instead."
_RECOMPUTE = "Set model.gradient_checkpointing=true instead."
_FSDP: Fixed = {
    "FSDP_VERSION": ("fsdp_version", "2", "configs/accelerate/fsdp2.yaml is such."),
    "FSDP_ACTIVATION_CHECKPOINTING": ("fsdp_activation_checkpointing", "false", _RECOMPUTE),
    "ACCELERATE_MIXED_PRECISION": _PRECISION,
}
_FILE = (
    "zero_stage, offload_optimizer_device and offload_param_device are keys of the accelerate"
    " configuration; the run decides the rest."
)
_STEPS = "per_device_train_batch_size of the run decides."
_NORM = "max_grad_norm of the run decides instead."
_DEEPSPEED: Fixed = {
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": ("deepspeed_config_file", "none", _FILE),
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": (
        *("zero3_init_flag", "false"),
        "It would also shard the networks of rewards.",
    ),
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ("gradient_accumulation_steps", "auto", _STEPS),
    "ACCELERATE_GRADIENT_CLIPPING": ("gradient_clipping", "auto", _NORM),
    "ACCELERATE_MIXED_PRECISION": _PRECISION,
}


def check_launch(optimizer: str = "adamw", torch_compile: bool = False) -> None:
    """Check the accelerate configuration that the launcher has passed on, for the optimiser of the
    run. Raises ConfigError: a kind of sharding, or a key of it, that is not followed, or not with
    this optimiser; or no compiler."""
    if torch_compile and find_accelerator() is None:
        names = (os.environ.get("CXX", "g++"), "clang++")
        allowed = f"true where a C++ compiler is installed ({' or '.join(names)}), or false"
        check(any(map(shutil.which, names)), "torch_compile", True, allowed)
    kind, fits = find_sharding(), optimizer in ("adamw", "sgd")
    megatron = is_set("ACCELERATE_USE_MEGATRON_LM")
    allowed = "MULTI_GPU, FSDP or DEEPSPEED: configs/accelerate has a file of each"
    check(not megatron, "distributed_type", "MEGATRON_LM", allowed)
    if kind == "FSDP":
        _check_fixed(_FSDP, {"FSDP_VERSION": "1"})
        _check_mesh()
    elif kind == "DEEPSPEED":
        _check_deepspeed(torch_compile)
    advice = "configs/accelerate/multi_gpu.yaml leaves tensors whole on every device."
    allowed = "adamw or sgd where the model is sharded"
    check(kind is None or fits, "optimizer", optimizer, allowed, advice)


def check_images(key: str, value: object, mixed: bool, trained: bool) -> None:
    """Refuse data, by the setting `key` with this value, of which one process may show images to a
    tower while another reads words alone: some rows have images and others none, and the tower or
    its projector is trained.

    DeepSpeed reduces gradients and gathers weights in the order in which modules compute, which
    depends on whether there are images: sums would be wrong, or processes would wait for each
    other. Raises ConfigError: the data are mixed, and the launch has several processes."""
    if find_sharding() == "DEEPSPEED" and count_processes() > 1:
        allowed = "rows that all have images, or none, with DeepSpeed and a vision tower"
        advice = "Launch with configs/accelerate/fsdp2.yaml, or make a task of each kind."
        apart = trained or read_zero()[0] == "3"
        check(not (mixed and apart), key, value, allowed, advice)


def _check_fixed(fixed: Fixed, absent: dict[str, str]) -> None:
    """Check every key; `absent` are values of variables that the launcher leaves out."""
    for variable, (key, wanted, advice) in fixed.items():
        value = os.environ.get(variable, absent.get(variable, wanted))
        check(value.lower() == wanted, key, value, f"{wanted} in this launch", advice)


def _check_deepspeed(torch_compile: bool) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "distributed_type is DEEPSPEED in the accelerate configuration, which needs the package"
            " deepspeed. Install it with: pip install -e '.[deepspeed]'"
        )
    stage, moments, weights = read_zero()
    check(stage in ("2", "3"), "zero_stage", stage, "2 or 3", "See configs/accelerate/zero*.yaml.")
    _check_fixed(_DEEPSPEED, {"ACCELERATE_DEEPSPEED_ZERO3_INIT": str(stage == "3")})
    offloads = f"offload_optimizer_device {moments} and offload_param_device {weights}"
    places = [("none", "none"), *([("cpu", "none"), ("cpu", "cpu")] if stage == "3" else [])]
    allowed = "2 without offloading, or 3, where both devices or the first may be cpu"
    check((moments, weights) in places, "zero_stage", f"{stage} with {offloads}", allowed)
    allowed = "false with zero_stage 3, whose hooks cannot be compiled"
    check(not (torch_compile and stage == "3"), "torch_compile", torch_compile, allowed)


def _check_mesh() -> None:
    """Raise a ConfigError for a `parallelism_config` that is no FSDP2 with replication."""
    if not is_set("ACCELERATE_USE_PARALLELISM_CONFIG"):
        return
    replicas, shards = (
        int(os.environ.get(f"PARALLELISM_CONFIG_DP_{name}_SIZE", "1"))
        for name in ("REPLICATE", "SHARD")
    )
    if replicas * shards != count_processes() or shards == 1:
        raise ConfigError(
            f"parallelism_config_dp_replicate_size is {replicas} and"
            f" parallelism_config_dp_shard_size {shards}, for {count_processes()} processes. The"
            " first is usually the number of nodes, the second the number of processes of a node,"
            " at least 2; their product must be the number of processes."
        )
