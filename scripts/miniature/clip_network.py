"""A new open_clip model of the sizes of another, saved in open_clip's format."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from mmrl.config import import_extra

SIZES = "open_clip_config.json"


def read_sizes(network: str) -> dict[str, Any]:
    """The keyword arguments of open_clip's `CLIP` for a network of these sizes."""
    return json.loads((Path(network) / SIZES).read_text(encoding="utf-8"))["model_cfg"]


def new_clip(network: str, seed: int) -> nn.Module:
    """Build an open_clip model with new weights that depend on the seed only."""
    open_clip = import_extra("open_clip", "clip")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return open_clip.CLIP(**read_sizes(network))


def save_clip(module: nn.Module, network: str, directory: Path, dtype: torch.dtype) -> None:
    """Write architecture, weights and tokenizer as open_clip's `local-dir:` loader reads them."""
    for name in (SIZES, "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(Path(network) / name, directory / name)
    weights = {name: w.to(dtype).contiguous().cpu() for name, w in module.state_dict().items()}
    save_file(weights, directory / "open_clip_model.safetensors")
