"""FLUX.2-klein (black-forest-labs/FLUX.2-klein-4B, -9B, and their base models).

A checkpoint is the directory of a `Flux2KleinPipeline`. Guidance is for the base models: their
pipeline's `guidance_scale` is `cfg_scale` + 1, and ignored by one that `is_distilled`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.flux import (
    KEYS,
    KIND,
    LAYOUTS,
    SIDE,
    TOKEN_IDS,
    VOCAB_KEYS,
    count_codes,
    count_patch,
)
from mmrl.models.families.latent_layouts import check_channels, latent_layouts
from mmrl.models.layouts.layout import Layout
from mmrl.models.network.flux import Flux2Network

__all__ = ["KEYS", "KIND", "LAYOUTS", "TOKEN_IDS", "VOCAB_KEYS", "count_codes", "count_patch"]


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `Flux2KleinPipeline`."""
    return config.get("_class_name") == "Flux2KleinPipeline"


def network(config: Mapping[str, Any]) -> Flux2Network:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels") // 4, config["vae"].get("latent_channels"))
    return Flux2Network(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    rule = replace(rule_of(config["scheduler"], even=True), mu="fitted")
    sizes = count_patch(config), config["in_channels"], SIDE // 2
    return latent_layouts(inputs, encode_text, rule, *sizes)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States of three layers of Qwen3, side by side; see `Flux2Network.forward`."""
    states, _ = pipeline.encode_prompt(text, device, max_sequence_length=max_length)
    return {"states": states}
