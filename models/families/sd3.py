"""SD3 and SD3.5 (stabilityai/stable-diffusion-3.5-medium and -large; arXiv 2403.03206).

A checkpoint is the directory of a `StableDiffusion3Pipeline`. Where its `text_encoder_3` is null,
T5's states are zeros, as in the pipeline itself.
"""

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import check_channels, count_halvings, latent_layouts
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.sd3 import SD3Network

KIND: str = "flow"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToLatents}
TOKEN_IDS: dict[str, int] = {}
VOCAB_KEYS: tuple[str, ...] = ()
KEYS = {"transformer.": ""}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `StableDiffusion3Pipeline`."""
    return config.get("_class_name") == "StableDiffusion3Pipeline"


def network(config: Mapping[str, Any]) -> SD3Network:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels"), config["vae"].get("latent_channels"))
    return SD3Network(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    encode, rule = partial(encode_text, width=config["joint_attention_dim"]), config["scheduler"]
    sizes = count_pixels(config), config["in_channels"], config["sample_size"]
    return latent_layouts(inputs, encode, rule_of(rule), *sizes, optional=("text_encoder_3",))


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int, width: int
) -> dict[str, Tensor]:
    """States of all encoders, of `width` numbers, and pooled vectors of CLIP's; see
    `SD3Network.forward`."""
    # which the pipeline asks for the width of the zeros where there is no T5
    pipeline.transformer = SimpleNamespace(config=SimpleNamespace(joint_attention_dim=width))
    states, _, pooled, _ = pipeline.encode_prompt(
        text, None, None, device, 1, False, max_sequence_length=max_length
    )
    return {"states": states, "pooled": pooled}


def count_pixels(config: Mapping[str, Any]) -> int:
    """Pixels for each latent along a side."""
    return count_halvings(config["vae"])


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels for each token along a side."""
    return count_pixels(config) * config["patch_size"]


def count_codes(config: Mapping[str, Any]) -> int:
    """Tokens of an image where no size is asked for."""
    return (config["sample_size"] // config["patch_size"]) ** 2
