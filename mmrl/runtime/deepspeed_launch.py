"""Checks of an accelerate configuration with `distributed_type: DEEPSPEED`.

A run decides precision, clipping, accumulation and the optimiser itself, so what the configuration
says of them is refused rather than ignored.
"""

import importlib.util
import os
from typing import Any

from mmrl.config import ConfigError, check

_FIXED = {
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": ("deepspeed_config_file", "none", "none"),
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": ("zero3_init_flag", "false", "true"),
    "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": ("zero3_save_16bit_model", "false", "false"),
    "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES": ("deepspeed_moe_layer_cls_names", "none", "none"),
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ("gradient_accumulation_steps", "auto", "auto"),
    "ACCELERATE_GRADIENT_CLIPPING": ("gradient_clipping", "auto", "auto"),
    "ACCELERATE_MIXED_PRECISION": ("mixed_precision", "no", "no"),
}
"""Variable of the launcher -> key of its configuration file, required value, value when absent."""

_ADVICE = {
    "deepspeed_config_file": "The settings of the run decide what such a file holds; zero_stage,"
    " offload_optimizer_device and offload_param_device are keys of the accelerate configuration.",
    "zero3_init_flag": "It would also shard the networks of rewards.",
    "zero3_save_16bit_model": "save_dtype of the run decides instead.",
    "deepspeed_moe_layer_cls_names": "No network here has such layers.",
    "gradient_accumulation_steps": "per_device_train_batch_size of the run, or its"
    " gradient_accumulation_steps, decides instead.",
    "gradient_clipping": "max_grad_norm of the run decides instead.",
    "mixed_precision": "bf16=auto of the run, or bf16=true, decides instead.",
}
_FILES = "configs/accelerate/zero2.yaml, zero3.yaml and zero3_offload.yaml are such."


def uses_deepspeed() -> bool:
    """Whether the accelerate configuration asks for DeepSpeed."""
    return os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() in ("true", "1")


def leave_out_kernels() -> None:
    """Keep DeepSpeed from compiling collectives for the CPU, where gloo has them: that takes a
    compiler and fails in a folder with spaces in its name."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def check_deepspeed(torch_compile: Any) -> None:
    """Check the configuration of a launch with DeepSpeed.

    Args:
        torch_compile: setting of the run.

    Raises:
        ConfigError: DeepSpeed is not installed, or a key is not followed.
    """
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "distributed_type is DEEPSPEED in the accelerate configuration, which needs the package"
            " deepspeed. Install it with: pip install -e '.[deepspeed]'"
        )
    stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    check(stage in ("2", "3"), "zero_stage", stage, "2 or 3", _FILES)
    for variable, (key, wanted, absent) in _FIXED.items():
        value = os.environ.get(variable, absent if stage == "3" else wanted)
        check(value.lower() == wanted, key, value, f"{wanted} with DeepSpeed", _ADVICE[key])
    _check_offload(stage)
    if stage == "3":
        allowed = "auto or false with zero_stage 3, whose hooks cannot be compiled"
        check(torch_compile is not True, "torch_compile", torch_compile, allowed)


def _check_offload(stage: str) -> None:
    moments, weights = (
        os.environ.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE", "none")
        for name in ("OPTIMIZER", "PARAM")
    )
    places = ("none", "cpu") if stage == "3" else ("none",)
    allowed = f"{' or '.join(places)} with zero_stage {stage}"
    check(moments in places, "offload_optimizer_device", moments, allowed, _FILES)
    places = ("none", "cpu") if moments == "cpu" else ("none",)
    allowed = f"{' or '.join(places)} with offload_optimizer_device {moments}"
    check(weights in places, "offload_param_device", weights, allowed, _FILES)


def check_value_model() -> None:
    """Raise a ConfigError for a value model where DeepSpeed, which trains one model, is used."""
    if uses_deepspeed():
        allowed = "null with DeepSpeed, which trains one model"
        advice = "Launch with configs/accelerate/fsdp2.yaml."
        check(False, "algorithm.value", "given", allowed, advice)


def check_images(key: str, value: object, mixed: bool, trained: bool) -> None:
    """Refuse data of which one process may show images to a tower while another reads words alone.

    DeepSpeed reduces gradients in the order in which a backward pass reaches them and gathers
    weights in the order in which modules compute, and both orders depend on whether there are
    images: sums would be wrong, or processes would wait for each other.

    Args:
        key: of the setting that names the data.
        value: of it.
        mixed: whether some rows have images and others none.
        trained: whether the tower or its projector is.

    Raises:
        ConfigError: the data are mixed, and the launch has several processes.
    """
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if uses_deepspeed() and several:
        stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
        allowed = f"rows that all have images, or none, with zero_stage {stage} and a vision tower"
        advice = "Launch with configs/accelerate/fsdp2.yaml, or make a task of each kind."
        check(not (mixed and (trained or stage == "3")), key, value, allowed, advice)
