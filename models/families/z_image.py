"""Z-Image and Z-Image-Turbo (Tongyi-MAI/Z-Image; arXiv 2511.22699).

A checkpoint is the directory of a `ZImagePipeline`; its text encoder is a Qwen3. Turbo is distilled
to eight steps without guidance. `cfg_scale` is the `guidance_scale` of this pipeline.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.z_image import ZImageNetwork


class ZImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, even = "ZImagePipeline", ZImageNetwork, True

    def encode_text(
        self, pipeline: Any, text: str | list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States and numbers of the tokens of texts, see `ZImageNetwork.forward`; states are
        followed by zeros up to `max_length`."""
        texts = [text] if isinstance(text, str) else list(text)  # in which the pipeline writes
        found, _ = pipeline.encode_prompt(texts, device, False, max_sequence_length=max_length)
        states = torch.stack([F.pad(each, (0, 0, 0, max_length - len(each))) for each in found])
        return {"states": states, "length": torch.tensor([len(each) for each in found])}

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return config["all_patch_size"][0]
