"""Directories of a PEFT adapter: `adapter_config.json`, and the checkpoint that it belongs to."""

from pathlib import Path
from typing import Any

from mmrl.config.settings_file import read_settings_file

ADAPTER_CONFIG = "adapter_config.json"
LORA = ".lora_"
"""What the names of an adapter's tensors have after that of their layer."""
_NEEDED = {"peft_type": str, "base_model_name_or_path": str, "r": int, "lora_alpha": int | float}
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "lora_bias": (False,),
    "use_qalora": (False,),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "layer_replication": (None,),
    "megatron_config": (None,),
    "trainable_token_indices": (None,),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None,),
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
}
"""Keys of adapter_config.json with the values that are read here; other ways of drawing the first
factors also change the weights of the base."""


def is_adapter(directory: Path) -> bool:
    """Whether a directory holds an adapter and no whole model."""
    return (directory / ADAPTER_CONFIG).is_file() and not (directory / "config.json").is_file()


def read_adapter_config(directory: Path) -> dict[str, Any]:
    """`adapter_config.json` of a directory. Raises ValueError: it is no JSON object, lacks a key,
    or asks for a variant that is not read."""
    path = directory / ADAPTER_CONFIG
    config = read_settings_file(path)
    for key, kind in _NEEDED.items():
        value: Any = config.get(key)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or value <= type(value)():  # zero, or an empty text
            raise ValueError(f"{path}: {key} is {value!r}; write what it was trained with")
    for key, allowed in _ALLOWED.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{path}: {key} is {config[key]!r}; only {' or '.join(map(repr, allowed))} is read."
                " Merge the adapter with peft (merge_and_unload) and load the merged model."
            )
    return config


def find_base(directory: Path) -> str | Path:
    """The path or hub id of the checkpoint that an adapter belongs to; of a relative path that is
    no directory here, the one beside the adapter.
    """
    base = str(read_adapter_config(directory)["base_model_name_or_path"])
    beside = directory / base
    return beside if not Path(base).expanduser().is_dir() and beside.is_dir() else base
