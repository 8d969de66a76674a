"""What of an accelerate configuration a run cannot follow.

A run decides precision, clipping, accumulation and the optimiser itself, so what the configuration
says of them is refused rather than ignored.
"""

import importlib.util
import os
from collections.abc import Mapping
from typing import NamedTuple

import torch

from mmrl.config import ConfigError, check
from mmrl.runtime.compilation import check_compiler
from mmrl.runtime.launch import count_processes, find_sharding, is_set


class Fixed(NamedTuple):
    """A key of the configuration: its name, the only value that is followed, and what to do."""

    key: str
    wanted: str
    advice: str


_PRECISION = Fixed("mixed_precision", "no", "bf16=auto of the run, or bf16=true, decides instead.")
_FSDP = {
    "FSDP_VERSION": Fixed("fsdp_version", "2", "configs/accelerate/fsdp2.yaml is such."),
    "FSDP_ACTIVATION_CHECKPOINTING": Fixed(
        "fsdp_activation_checkpointing", "false", "Set model.gradient_checkpointing=true instead."
    ),
    "ACCELERATE_MIXED_PRECISION": _PRECISION,
}
_DEEPSPEED = {
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": Fixed(
        "deepspeed_config_file",
        "none",
        "zero_stage, offload_optimizer_device and offload_param_device are keys of the accelerate"
        " configuration; the run decides the rest.",
    ),
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": Fixed(
        "zero3_init_flag", "false", "It would also shard the networks of rewards."
    ),
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": Fixed(
        "gradient_accumulation_steps", "auto", "per_device_train_batch_size of the run decides."
    ),
    "ACCELERATE_GRADIENT_CLIPPING": Fixed(
        "gradient_clipping", "auto", "max_grad_norm of the run decides instead."
    ),
    "ACCELERATE_MIXED_PRECISION": _PRECISION,
}
"""By the variable of the launcher."""


def check_launch(optimizer: str = "adamw", torch_compile: bool = False) -> None:
    """Check the accelerate configuration that the launcher has passed on.

    Args:
        optimizer: name of the optimiser of the run.
        torch_compile: setting of the run.

    Raises:
        ConfigError: a kind of sharding, or a key of it, that is not followed, or not with this
            optimiser; or no compiler.
    """
    check_compiler(torch_compile)
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
    # a dry run may plan for another machine, see `mmrl.planning.planned_launch`
    pages = torch.cuda.is_available() or not is_set("ACCELERATE_USE_CPU", "true")
    allowed = "adamw, adamw_8bit or sgd without a GPU of CUDA, whose memory the pages are of"
    check(pages or not optimizer.startswith("paged"), "optimizer", optimizer, allowed)


def check_value_backbone(backbone: str) -> None:
    """Raise a ConfigError for a value model that DeepSpeed, which trains one model, cannot train.

    Args:
        backbone: `value.backbone` of the algorithms of a run.
    """
    fits = backbone == "shared" or find_sharding() != "DEEPSPEED"
    advice = "Launch with configs/accelerate/fsdp2.yaml for a value model that is a copy."
    allowed = "shared with DeepSpeed, which trains one model"
    check(fits, "algorithm.value.backbone", backbone, allowed, advice)


def check_images(key: str, value: object, mixed: bool, trained: bool) -> None:
    """Refuse data of which one process may show images to a tower while another reads words alone.

    DeepSpeed reduces gradients and gathers weights in the order in which modules compute, which
    depends on whether there are images: sums would be wrong, or processes would wait for each
    other.

    Args:
        key: of the setting that names the data.
        value: of it.
        mixed: whether some rows have images and others none.
        trained: whether the tower or its projector is.

    Raises:
        ConfigError: the data are mixed, and the launch has several processes.
    """
    if find_sharding() == "DEEPSPEED" and count_processes() > 1:
        allowed = "rows that all have images, or none, with DeepSpeed and a vision tower"
        advice = "Launch with configs/accelerate/fsdp2.yaml, or make a task of each kind."
        apart = trained or _zero_stage() == "3"
        check(not (mixed and apart), key, value, allowed, advice)


def _check_fixed(fixed: Mapping[str, Fixed], absent: Mapping[str, str]) -> None:
    for variable, (key, wanted, advice) in fixed.items():
        value = os.environ.get(variable, absent.get(variable, wanted))
        check(value.lower() == wanted, key, value, f"{wanted} in this launch", advice)


def _check_deepspeed(torch_compile: bool) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "distributed_type is DEEPSPEED in the accelerate configuration, which needs the package"
            " deepspeed. Install it with: pip install -e '.[deepspeed]'"
        )
    stage = _zero_stage()
    check(stage in ("2", "3"), "zero_stage", stage, "2 or 3", "See configs/accelerate/zero*.yaml.")
    absent = {"ACCELERATE_DEEPSPEED_ZERO3_INIT": "true"} if stage == "3" else {}
    _check_fixed(_DEEPSPEED, absent)
    moments, weights = (
        os.environ.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE", "none")
        for name in ("OPTIMIZER", "PARAM")
    )
    offloads = f"offload_optimizer_device {moments} and offload_param_device {weights}"
    places = [("none", "none"), *([("cpu", "none"), ("cpu", "cpu")] if stage == "3" else [])]
    allowed = "2 without offloading, or 3, where both devices or the first may be cpu"
    check((moments, weights) in places, "zero_stage", f"{stage} with {offloads}", allowed)
    allowed = "false with zero_stage 3, whose hooks cannot be compiled"
    check(not (torch_compile and stage == "3"), "torch_compile", torch_compile, allowed)


def _zero_stage() -> str:
    return os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")


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
