"""FLUX.1 (black-forest-labs/FLUX.1-dev, FLUX.1-schnell).

A checkpoint is the directory of a `FluxPipeline`. `cfg_scale` w is its `true_cfg_scale` 1 + w with
an empty negative prompt; the guidance that is embedded is a constant, see
`mmrl.models.network.flux.GUIDANCE`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import check_channels, count_halvings, latent_layouts
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.flux import FluxNetwork

KIND: str = "flow"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToLatents}
TOKEN_IDS: dict[str, int] = {}
VOCAB_KEYS: tuple[str, ...] = ()
KEYS = {"transformer.": ""}
SIDE = 128
"""Latents along the side of an image where no size is asked for, as in the pipeline."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `FluxPipeline`."""
    return config.get("_class_name") == "FluxPipeline"


def network(config: Mapping[str, Any]) -> FluxNetwork:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels") // 4, config["vae"].get("latent_channels"))
    return FluxNetwork(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    rule, pixels = rule_of(config["scheduler"], even=True), count_halvings(config["vae"])
    return latent_layouts(inputs, encode_text, rule, pixels, config["in_channels"] // 4, SIDE)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States of T5 and the pooled vector of CLIP; see `FluxNetwork.forward`."""
    states, pooled, _ = pipeline.encode_prompt(text, None, device, max_sequence_length=max_length)
    return {"states": states, "pooled": pooled}


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels for each token along a side."""
    return 2 * count_halvings(config["vae"])


def count_codes(config: Mapping[str, Any]) -> int:
    """Tokens of an image where no size is asked for."""
    return (SIDE // 2) ** 2
