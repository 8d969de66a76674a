"""Directories of a diffusers pipeline as checkpoints: parts in folders, named by model_index.json.

The network is the part `transformer`. A copy of a pipeline has all parts as they are but this one.
"""

import shutil
from pathlib import Path
from typing import Any

from mmrl.config.settings_file import read_settings_file
from mmrl.models.source import HALVES

INDEX = "model_index.json"
CLASS = "AmusedPipeline"
"""The pipeline whose directories are read."""
NETWORK, TEXT_ENCODER, TOKENIZER = "transformer", "text_encoder", "tokenizer"
PARTS = {
    NETWORK: "config.json",
    "vqvae": "config.json",
    TEXT_ENCODER: "config.json",
    TOKENIZER: "tokenizer_config.json",
    "scheduler": "scheduler_config.json",
}
"""Parts of the pipeline, and the file that each of them has."""


def is_pipeline(directory: Path) -> bool:
    """Whether a directory is that of a diffusers pipeline."""
    return (directory / INDEX).is_file() and not (directory / "config.json").is_file()


def network_directory(directory: Path) -> Path:
    """Where the tensors of the network of a checkpoint are."""
    return directory / NETWORK if is_pipeline(directory) else directory


def read_pipeline(directory: Path) -> dict[str, Any]:
    """What config.json is to other checkpoints: that of the transformer, with those of `vqvae` and
    `text_encoder` under their names, the id of the mask, and the class of the pipeline. Raises
    FileNotFoundError: a part is missing. Raises ValueError: not JSON, or another pipeline."""
    index = read_settings_file(directory / INDEX)
    if (named := index.get("_class_name")) != CLASS:
        raise ValueError(f"'{directory / INDEX}' is of a pipeline {named!r}; {CLASS} alone is read")
    absent = [f"{n}/{file}" for n, file in PARTS.items() if not (directory / n / file).is_file()]
    if absent:
        raise FileNotFoundError(
            f"'{directory}', an {CLASS}, lacks {', '.join(absent)}. Copy or download it again."
        )
    found = {name: read_settings_file(directory / name / file) for name, file in PARTS.items()}
    return {
        **found[NETWORK],
        "_class_name": CLASS,
        "mask_token_id": found["scheduler"].get("mask_token_id"),
        **{name: found[name] for name in ("vqvae", TEXT_ENCODER)},
    }


def copy_parts(source: Path, directory: Path) -> None:
    """Copy a pipeline without the tensors of its network, and without halves of the weights."""
    for name in PARTS:
        left = [HALVES, "*.safetensors*", "*.bin"] if name == NETWORK else [HALVES]
        ignored = shutil.ignore_patterns(*left)
        shutil.copytree(source / name, directory / name, ignore=ignored, dirs_exist_ok=True)
    shutil.copyfile(source / INDEX, directory / INDEX)
