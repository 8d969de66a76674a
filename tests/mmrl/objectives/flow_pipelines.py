"""Tiny pipelines of latents, and images with texts for them."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image

from mmrl.objectives.flow import Flow
from mmrl.objectives.options import FlowConfig
from tests.by_path import load as load_script
from tests.mmrl.starts import SHAPES
from tests.pictures import write_images

load_script(SHAPES, "tokenizer")
pipelines = load_script(SHAPES, "flow_pipeline")
TEXTS = ("a red ring", "a circle and a large blue cross", "two rings", "a square", "a tan cross")
COLORS = ("red", "blue", "tan", "teal", "black")


def write_start(folder: Path) -> str:
    """A pipeline without weights but those of its autoencoder, of 8 x 8 pixels and 4 x 4 latents of
    4 channels."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    torch.manual_seed(0)
    vae = AutoencoderKL(
        block_out_channels=(4, 4),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=2,
        latent_channels=4,
        mid_block_add_attention=False,
        sample_size=8,
        scaling_factor=1.5,
        shift_factor=0.1,
    )
    vae.save_pretrained(folder / "vae")
    sizes = {"width": 16, "layers": 1, "heads": 2, "length": 12}
    pipelines.write(pipelines.Config(out=str(folder / "start"), vae=str(folder / "vae"), **sizes))
    return str(folder / "start")


def write_pairs(path: Path) -> str:
    """A parquet of five images with their texts."""
    return str(write_images(path, [Image.new("RGB", (8, 8), color) for color in COLORS], TEXTS))


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    """Options of the objective on the pipeline and pairs of a folder; everything is new."""
    usual = {"new_weights": True, "train_text_encoder": True, "max_prompt_length": 2}
    places = {"data": str(folder / "pairs.parquet"), "model": str(folder / "start")}
    return {**places, **usual, "save_dtype": "float32", **changes}


def build(folder: Path, batch_size: int = 4, **changes: Any) -> Flow:
    """The objective."""
    return Flow(FlowConfig(**options(folder, **changes)), seed=0, batch_size=batch_size)
