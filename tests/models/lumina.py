"""A small Lumina-DiMOO-type checkpoint, whose weights are drawn here, and numbers of public code.

`tests/fixtures/lumina` holds inputs and outputs of the public code for a network of width 8 with
the whole vocabulary of 134,548 rows, and for a narrow `VQModel`. Their weights are drawn in the
order of sorted names, each from one generator, and rounded to bfloat16.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lumina"
VQ = {
    "_class_name": "VQModel",
    "block_out_channels": [4, 8, 8, 8, 12],
    "down_block_types": ["DownEncoderBlock2D"] * 5,
    "up_block_types": ["UpDecoderBlock2D"] * 5,
    "latent_channels": 4,
    "layers_per_block": 1,
    "lookup_from_codebook": True,
    "force_upcast": True,
    "mid_block_add_attention": False,
    "norm_num_groups": 4,
    "num_vq_embeddings": 8192,
}
"""Sizes of the narrow image tokenizer: 16 x 16 pixels a code, as the public one."""


def draw_vq(shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the narrow image tokenizer, from tensors of their shapes."""
    generator, drawn = Generator().manual_seed(62), {}
    for name in sorted(shapes):
        noise = torch.randn(shapes[name].shape, generator=generator)
        scale = 0.0375 if name == "decoder.conv_out.weight" else 0.3
        is_norm = "norm" in name and name.endswith("weight")
        drawn[name] = (1 + 0.06 * noise if is_norm else scale * noise).bfloat16()
    drawn["decoder.conv_out.bias"] = torch.full((3,), 0.5).bfloat16()
    return drawn


def write_vq(directory: Path) -> Path:
    """Write the narrow image tokenizer as diffusers does."""
    from models.image_tokenizers.image_tokenizer import build_vq

    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(VQ))
    with torch.device("meta"):
        shapes = build_vq(VQ).state_dict()
    save_file(draw_vq(shapes), directory / "diffusion_pytorch_model.safetensors")
    return directory
