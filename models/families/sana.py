"""Sana and SANA-1.5 (Efficient-Large-Model/Sana_600M_512px_diffusers; arXiv 2410.10629).

A checkpoint is the directory of a `SanaPipeline`. A text is encoded behind the instruction that is
the default of that pipeline, and the empty one, of the branch without a text, alone. Images have
the size that is asked for, as with the pipeline's `use_resolution_binning=False`.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import (
    check_channels,
    count_halvings,
    encode_each,
    latent_layouts,
)
from mmrl.models.families.sd3 import count_codes
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.sana import SanaNetwork

__all__ = ["count_codes"]

KIND: str = "flow"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToLatents}
TOKEN_IDS: dict[str, int] = {}
VOCAB_KEYS: tuple[str, ...] = ()
KEYS = {"transformer.": ""}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `SanaPipeline`."""
    return config.get("_class_name") == "SanaPipeline"


def network(config: Mapping[str, Any]) -> SanaNetwork:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels"), config["vae"].get("latent_channels"))
    return SanaNetwork(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    sizes = count_halvings(config["vae"]), config["in_channels"], config["sample_size"]
    return latent_layouts(inputs, encode_text, rule_of(config["scheduler"]), *sizes)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States of Gemma and where they are not padding; see `SanaNetwork.forward`."""
    instruction = signature(type(pipeline).__call__).parameters["complex_human_instruction"].default

    def encode(text: str) -> tuple[Tensor, Tensor]:
        return pipeline.encode_prompt(
            text,
            False,
            device=device,
            max_sequence_length=max_length,
            complex_human_instruction=instruction if text else None,
        )[:2]

    return encode_each(encode, text)


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels for each token along a side."""
    return count_halvings(config["vae"]) * config["patch_size"]
