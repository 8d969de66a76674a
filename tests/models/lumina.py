"""A small Lumina-DiMOO-type checkpoint, whose weights are drawn here, and numbers of public code.

`tests/fixtures/lumina` holds inputs and outputs of the public code for a network of width 8 with
the whole vocabulary of 134,548 rows, and for a narrow `VQModel`. Their weights are drawn in the
order of sorted names, each from one generator, and rounded to bfloat16.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.families import lumina, names_of
from mmrl.models.families.family import LayoutInputs
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, build_vq
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.loading import build_network
from mmrl.models.network.core import MaskedTokenModel
from tests.models.llada_tokenizer import LUMINA, llada_tokenizer

MASK = 126336
FIXTURE = Path(__file__).parents[1] / "fixtures" / "lumina"
VQ = {"_class_name": "VQModel", "block_out_channels": [4, 8, 8, 8, 12]}
VQ |= {"down_block_types": ["DownEncoderBlock2D"] * 5, "up_block_types": ["UpDecoderBlock2D"] * 5}
VQ |= {"latent_channels": 4, "layers_per_block": 1, "lookup_from_codebook": True}
VQ |= {"force_upcast": True, "mid_block_add_attention": False, "norm_num_groups": 4}
VQ |= {"num_vq_embeddings": 8192}
"""Sizes of the narrow image tokenizer: 16 x 16 pixels a code, as the public one."""


@cache
def draw_network() -> MaskedTokenModel:
    """The network of the fixture in float32; tests leave it as it is."""
    model = build_network(json.loads((FIXTURE / "config.json").read_text()))
    generator, state = Generator().manual_seed(61), model.state_dict()
    for public, name in sorted((public, name) for name, public in names_of(model).items()):
        noise = torch.randn(state[name].shape, generator=generator)
        scale = 1.6 if "q_proj" in public else 0.8 if "attn_out" in public else 0.4
        is_norm = noise.ndim == 1
        state[name] = (1 + 0.08 * noise if is_norm else scale * noise).bfloat16().float()
        if name == "embed.weight":
            state[name][MASK] = (0.05 * noise[MASK]).bfloat16().float()
    model.load_state_dict(state)
    return model.eval()


def public_vq() -> ImageTokenizer:
    """What layouts need of an image tokenizer of 8192 codes of 16 x 16 pixels, without weights."""
    with torch.device("meta"):
        return build_vq({})


@cache
def public_tokenizer() -> PreTrainedTokenizerBase:
    """The ids of the fixture."""
    return llada_tokenizer(LUMINA, 126356)


def build_layout(network: Any, task: str, **options: Any) -> Any:
    """The layout of a task for the fixture."""
    choices = LayoutConfig(max_prompt_length=1000, **options)
    return lumina.layouts(LayoutInputs(network, public_tokenizer(), choices, public_vq()))[task]


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
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(VQ))
    with torch.device("meta"):
        shapes = build_vq(VQ).state_dict()
    save_file(draw_vq(shapes), directory / "diffusion_pytorch_model.safetensors")
    return directory
