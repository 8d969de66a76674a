"""Qwen-Image (Qwen/Qwen-Image; arXiv 2508.02324).

A checkpoint is the directory of a `QwenImagePipeline`; its text encoder is a Qwen2.5-VL.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.qwen_image import QwenImageNetwork

NO_TEXT = " "
"""In the place of the empty text: the pipeline's own example of a negative prompt."""


class QwenImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made = "QwenImagePipeline", QwenImageNetwork

    def encode_text(
        self, pipeline: Any, text: str | list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States and mask of the tokens of texts, see `QwenImageNetwork.forward`. Texts are padded
        to `max_length`, so that a row is computed alike in each batch."""
        texts = [each or NO_TEXT for each in ([text] if isinstance(text, str) else text)]
        states, mask = pipeline.encode_prompt(texts, device, max_sequence_length=max_length)
        mask = states.new_ones(states.shape[:2]) if mask is None else mask
        room = max_length - states.shape[1]
        return {"states": F.pad(states, (0, 0, 0, room)), "mask": F.pad(mask, (0, room)).bool()}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "in_channels") // config["patch_size"] ** 2

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return 2 ** len(config["vae"]["temperal_downsample"])

    def count_side(self, config: Mapping[str, Any]) -> int:
        return 128  # as in the pipeline
