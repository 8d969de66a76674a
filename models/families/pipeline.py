"""Directories of a diffusers pipeline as checkpoints: parts in folders, named by model_index.json.

The network is the part `transformer`; one of two experts has the second in `transformer_2`. A copy
of a pipeline has all parts as they are but these.
"""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from mmrl.config.settings_file import read_settings_file
from mmrl.models.source import HALVES, INDEX, list_folders
from mmrl.models.weights import read_headers

NETWORK, SECOND, TOKENIZER, SCHEDULER = "transformer", "transformer_2", "tokenizer", "scheduler"
FILES = {
    TOKENIZER: "tokenizer_config.json",
    SCHEDULER: "scheduler_config.json",
    "processor": "tokenizer_config.json",
    "image_processor": "preprocessor_config.json",
}
"""The file that says what a part is, by its name or the beginning of it; config.json elsewhere."""


def is_pipeline(directory: Path) -> bool:
    """Whether a directory is that of a diffusers pipeline."""
    return (directory / INDEX).is_file() and not (directory / "config.json").is_file()


def network_directories(directory: Path) -> dict[str, Path]:
    """Where the tensors of the network of a checkpoint are, by what is put before their names."""
    if not is_pipeline(directory):
        return {"": directory}
    second = {f"{SECOND}.": directory / SECOND} if SECOND in list_folders(directory) else {}
    return {"": directory / NETWORK, **second}


def list_parts(directory: Path) -> dict[str, Path]:
    """The parts that a pipeline names, and of each the file that says what it is. Raises
    ValueError: model_index.json names no network that is read."""
    named = list_folders(directory)
    if NETWORK not in named:
        kind = read_settings_file(directory / INDEX).get("_class_name")
        raise ValueError(f"'{directory / INDEX}' is of a pipeline {kind!r} without a {NETWORK}")
    kinds = {name: name if name in FILES else name.partition("_")[0] for name in named}
    files = {name: FILES.get(kind, "config.json") for name, kind in kinds.items()}
    return {name: directory / name / file for name, file in files.items()}


def read_pipeline(directory: Path) -> dict[str, Any]:
    """What config.json is to other checkpoints: that of the transformer, with those of the other
    parts under their names, the options of the pipeline, and its class. Raises FileNotFoundError: a
    part is missing. Raises ValueError: not JSON, or a pipeline without a transformer."""
    parts = list_parts(directory)
    absent = [f"{name}/{file.name}" for name, file in parts.items() if not file.is_file()]
    index = read_settings_file(directory / INDEX)
    kind = index.get("_class_name")
    if absent:
        raise FileNotFoundError(
            f"'{directory}', a {kind}, lacks {', '.join(absent)}. Copy or download it again."
        )
    found = {name: read_settings_file(file) for name, file in parts.items()}
    options = {key: value for key, value in index.items() if not isinstance(value, list)}
    return {**options, **found.pop(NETWORK), **found, "_class_name": kind}


def check_parts(directory: Path, left_out: Collection[str]) -> None:
    """Raise a FileNotFoundError or ValueError unless the parts of a pipeline beside its network,
    but for those that are `left_out`, have whole files of weights."""
    files = list_parts(directory) if is_pipeline(directory) else {}
    for name, file in files.items():
        if file.name == "config.json" and name not in (NETWORK, *left_out):
            read_headers(file.parent)


def copy_parts(source: Path, directory: Path) -> None:
    """Copy a pipeline without the tensors of its network, and without halves of the weights."""
    for name in list_parts(source):
        left = [*HALVES, "*.safetensors*", "*.bin"] if name in (NETWORK, SECOND) else HALVES
        ignored = shutil.ignore_patterns(*left)
        shutil.copytree(source / name, directory / name, ignore=ignored, dirs_exist_ok=True)
    shutil.copyfile(source / INDEX, directory / INDEX)
