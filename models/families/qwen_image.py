"""Qwen-Image (Qwen/Qwen-Image; arXiv 2508.02324).

A checkpoint is the directory of a `QwenImagePipeline`; its text encoder is a Qwen2.5-VL.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import check_channels, latent_layouts
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.qwen_image import QwenImageNetwork

KIND: str = "flow"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToLatents}
TOKEN_IDS: dict[str, int] = {}
VOCAB_KEYS: tuple[str, ...] = ()
KEYS = {"transformer.": ""}
SIDE = 128
"""Latents along the side of an image where no size is asked for, as in the pipeline."""
NO_TEXT = " "
"""In the place of the empty text: the pipeline's own example of a negative prompt."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `QwenImagePipeline`."""
    return config.get("_class_name") == "QwenImagePipeline"


def network(config: Mapping[str, Any]) -> QwenImageNetwork:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(count_channels(config), config["vae"].get("z_dim"))
    return QwenImageNetwork(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    sizes = count_pixels(config), count_channels(config), SIDE
    return latent_layouts(inputs, encode_text, rule_of(config["scheduler"]), *sizes)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States and mask of the tokens of texts, see `QwenImageNetwork.forward`. Texts are padded to
    `max_length`, so that a row is computed alike in each batch."""
    texts = [text] if isinstance(text, str) else text
    texts = [each or NO_TEXT for each in texts]
    states, mask = pipeline.encode_prompt(texts, device, max_sequence_length=max_length)
    mask = states.new_ones(states.shape[:2]) if mask is None else mask
    room = max_length - states.shape[1]
    return {"states": F.pad(states, (0, 0, 0, room)), "mask": F.pad(mask, (0, room)).bool()}


def count_channels(config: Mapping[str, Any]) -> int:
    """Of a latent; the transformer reads those of a token in a row."""
    return read_number(config, "in_channels") // config["patch_size"] ** 2


def count_pixels(config: Mapping[str, Any]) -> int:
    """Pixels for each latent along a side."""
    return 2 ** len(config["vae"]["temperal_downsample"])


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels for each token along a side."""
    return count_pixels(config) * config["patch_size"]


def count_codes(config: Mapping[str, Any]) -> int:
    """Tokens of an image where no size is asked for."""
    return (SIDE // config["patch_size"]) ** 2
