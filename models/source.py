"""Where a checkpoint comes from: a local directory, a hub id, or an adapter with its base.

A directory of a PEFT adapter has an `adapter_config.json`, which names the checkpoint that it
belongs to, and no `config.json`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from mmrl.config.checks import explain_absence, is_hub_id
from mmrl.config.settings_file import read_settings_file

PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
"""Files of a repository that are downloaded; code never is."""
HALVES = ["*.fp16.*", "*.fp16-*"]
"""Files of a second, rounded copy of the weights, which nothing here reads."""
INDEX = "model_index.json"
"""What names the parts of a pipeline of diffusers."""
PICKLED_NAME = "pytorch_model.bin"
ADAPTER_CONFIG = "adapter_config.json"
LORA = ".lora_"
"""What the names of an adapter's tensors have after that of their layer."""
_NEEDED = {"base_model_name_or_path": str, "r": int, "lora_alpha": int | float}
_UNREAD = (
    *("fan_in_fan_out", "lora_bias", "use_qalora", "rank_pattern", "alpha_pattern"),
    *("layer_replication", "megatron_config", "trainable_token_indices", "target_parameters"),
    "alora_invocation_tokens",
)
_DRAWS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways of drawing the first factors; others also change the weights of the base."""


def find_directory(
    path_or_hub_id: str | Path,
    pickled: bool = False,
    patterns: Sequence[str] = PATTERNS,
    left_out: Sequence[str] = (),
) -> Path:
    """A local directory holding the checkpoint, downloaded when it is a hub id, `pickled` also from
    a repository that has `pytorch_model.bin` in place of safetensors, and without the weights of
    the parts of a pipeline that are `left_out`. Raises FileNotFoundError: neither an existing
    directory nor a repository the hub returned."""
    name = str(path_or_hub_id)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    if not is_hub_id(name):
        raise FileNotFoundError(
            f"{name!r} is neither an existing directory nor a hub id such as"
            " Gen-Verse/MMaDA-8B-MixCoT or showlab/magvitv2. Give one of both."
        )
    try:
        directory = _download(name, [each for each in patterns if "safetensors" not in each])
        weights = [each for each in patterns if "safetensors" in each]
        if weights:
            parts = [part for part in list_folders(directory) if part not in left_out]
            # the repository of a pipeline has other copies of its weights beside its parts
            wanted = [f"{part}/{each}" for part in parts for each in weights]
            _download(name, wanted or weights)
        if pickled and not any(directory.glob("*.safetensors")):
            _download(name, [PICKLED_NAME])
        return directory
    except (HfHubHTTPError, OSError) as error:
        absence = explain_absence(name, error)
    # outside, for the errors of the client below it are pages long
    raise FileNotFoundError(absence)


def _download(name: str, patterns: Sequence[str]) -> Path:
    found = snapshot_download(name, allow_patterns=list(patterns), ignore_patterns=HALVES)
    return Path(found)


def read_index(directory: Path) -> dict[str, list[Any]]:
    """The parts that a pipeline of diffusers may have, each with its library and class, nulls for
    one that it is without; none of another checkpoint."""
    if not (directory / INDEX).is_file():
        return {}
    index = read_settings_file(directory / INDEX)
    return {name: kind for name, kind in index.items() if isinstance(kind, list)}


def list_folders(directory: Path) -> list[str]:
    """The folders of the parts that a pipeline has."""
    return sorted(name for name, kind in read_index(directory).items() if kind[-1])


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
        if not isinstance(value, kind) or not value:
            raise ValueError(f"{path}: {key} is {value!r}; write what it was trained with")
    read = {"peft_type": ("LORA",), "bias": (None, "none"), "init_lora_weights": _DRAWS}
    unread = [key for key in _UNREAD if config.get(key)]
    unread += [key for key, allowed in read.items() if config.get(key) not in allowed]
    if unread:
        raise ValueError(
            f"{path}: {unread[0]} is {config.get(unread[0])!r}, which is not read. Merge the"
            " adapter with peft (merge_and_unload) and load the merged model."
        )
    return config


def find_base(directory: Path) -> str | Path:
    """The path or hub id of the checkpoint that an adapter belongs to; of a relative path that is
    no directory here, the one beside the adapter."""
    base = str(read_adapter_config(directory)["base_model_name_or_path"])
    beside = directory / base
    return beside if not Path(base).expanduser().is_dir() and beside.is_dir() else base


def find_whole(directory: Path) -> Path:
    """The directory of a whole checkpoint: the given one, or that of the base of an adapter. Raises
    FileNotFoundError, ValueError: there is no such base, or it is an adapter too."""
    if not is_adapter(directory):
        return directory
    base = find_base(directory)
    where = f"{directory / ADAPTER_CONFIG}: base_model_name_or_path is '{base}'"
    try:
        found = find_directory(base)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}. {error} Write where it is into that file.") from error
    if is_adapter(found):
        raise ValueError(
            f"{where}, which is an adapter too. Merge that one with scripts/merge_adapter.py and"
            " write the merged model into that file."
        )
    return found
