"""Directories with the config.json and the tokenizer of a small network, without weights."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SHAPES = DATASETS / "shapes"


def write_start(folder: Path, shipped: str, tokenizer: Path | None = None, **sizes: Any) -> str:
    """A network like a shipped checkpoint, such as `text/llada`, in other sizes.

    Args:
        folder: to write, unless it is there.
        shipped: data set and name of the checkpoint.
        tokenizer: directory of another tokenizer.
        sizes: keys of config.json with other values.
    """
    world, name = shipped.split("/")
    source = DATASETS / world / "checkpoints" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        raw = json.loads((source / "config.json").read_text())
        if tokenizer is not None:
            count = len(AutoTokenizer.from_pretrained(tokenizer))
            raw |= dict.fromkeys(raw.keys() & {"vocab_size", "embedding_size"}, count)
        (folder / "config.json").write_text(json.dumps(raw | sizes))
        for path in (tokenizer or source).iterdir():
            if path.name.startswith(("tokenizer", "chat_template")):
                shutil.copyfile(path, folder / path.name)
    return str(folder)


def write_drawing(folder: Path, width: int = 32, mlp: int = 64) -> str:
    """A network of MMaDA's type, of two layers."""
    sizes = {"d_model": width, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "mlp_hidden_size": mlp}
    sizes["rope_theta"] = 500000.0
    return write_start(folder, "shapes/mmada", **sizes)
