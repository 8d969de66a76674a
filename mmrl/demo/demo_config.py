"""Settings of `python -m mmrl.demo`."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from mmrl.config import Settings, at_least, filled
from mmrl.models.image_tokenizers import OWN_VQ

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SHIPPED = ("shapes/checkpoints/mmada", "shapes/checkpoints/mmada_careless")
SHIPPED += ("shapes/checkpoints/flow", "shapes/checkpoints/llada_v", "shapes/checkpoints/qwen3_vl")
SHIPPED += ("text/checkpoints/llada", "text/checkpoints/sdar", "text/checkpoints/qwen3")


def _shipped(name: str) -> str:
    """A part of `datasets/`, relative where that is below the working directory."""
    path = DATASETS / name
    return os.path.relpath(path) if Path.cwd() in path.parents else str(path)


@dataclass(kw_only=True)
class DemoConfig(Settings):
    """What the page offers, and where it is served."""

    checkpoints: list[str] = field(
        default_factory=lambda: [_shipped(name) for name in SHIPPED if (DATASETS / name).is_dir()]
    )
    """Paths or hub ids that the page offers, beside those of the runs."""
    vq: Annotated[str | None, filled("a directory or a hub id")] = OWN_VQ
    """Path or hub id of the image tokenizer of `checkpoints`; null for text only. `auto` takes what
    each names or holds; those of a run have the run's."""
    runs: list[str] = field(default_factory=lambda: ["runs"])
    """Run directories, or folders of them."""
    image_size: int | None = None
    """Side of the images in pixels; null follows the checkpoint."""
    max_prompt_length: Annotated[int, at_least(1)] = 256
    """Longest prompt in tokens."""
    loaded: Annotated[int, at_least(1)] = 2
    """Checkpoints held in memory; the least recently used one leaves first."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights."""
    device: str = "auto"
    """`auto` takes the GPU if there is one."""
    port: Annotated[int, at_least(0, up_to=65535)] = 7860
    """Of 127.0.0.1, where the page is served; 0 takes the first free one from 7860 on."""
