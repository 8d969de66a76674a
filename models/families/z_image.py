"""Z-Image and Z-Image-Turbo (Tongyi-MAI/Z-Image; arXiv 2511.22699).

A checkpoint is the directory of a `ZImagePipeline`; its text encoder is a Qwen3. Turbo is distilled
to eight steps without guidance. `cfg_scale` is the `guidance_scale` of this pipeline.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import check_channels, count_halvings, latent_layouts
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.z_image import ZImageNetwork

KIND: str = "flow"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToLatents}
TOKEN_IDS: dict[str, int] = {}
VOCAB_KEYS: tuple[str, ...] = ()
KEYS = {"transformer.": ""}
SIDE = 128
"""Latents along the side of an image where no size is asked for, as in the pipeline."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `ZImagePipeline`."""
    return config.get("_class_name") == "ZImagePipeline"


def network(config: Mapping[str, Any]) -> ZImageNetwork:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels"), config["vae"].get("latent_channels"))
    return ZImageNetwork(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    rule, sizes = rule_of(config["scheduler"], even=True), (config["in_channels"], SIDE)
    return latent_layouts(inputs, encode_text, rule, count_halvings(config["vae"]), *sizes)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States and numbers of the tokens of texts, see `ZImageNetwork.forward`; states are followed
    by zeros up to `max_length`."""
    texts = [text] if isinstance(text, str) else list(text)  # in which the pipeline writes
    found, _ = pipeline.encode_prompt(texts, device, False, max_sequence_length=max_length)
    states = torch.stack([F.pad(each, (0, 0, 0, max_length - len(each))) for each in found])
    return {"states": states, "length": torch.tensor([len(each) for each in found])}


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels for each token along a side."""
    return count_halvings(config["vae"]) * config["all_patch_size"][0]


def count_codes(config: Mapping[str, Any]) -> int:
    """Tokens of an image where no size is asked for."""
    return (SIDE // config["all_patch_size"][0]) ** 2
