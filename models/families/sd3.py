"""SD3 and SD3.5 (stabilityai/stable-diffusion-3.5-medium and -large; arXiv 2403.03206).

A checkpoint is the directory of a `StableDiffusion3Pipeline`. Where its `text_encoder_3` is null,
T5's states are zeros, as in the pipeline itself.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.sd3 import SD3Network


class SD3(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, optional = "StableDiffusion3Pipeline", SD3Network, ("text_encoder_3",)

    def text_options(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"width": config["joint_attention_dim"]}

    def encode_text(
        self,
        pipeline: Any,
        text: str | list[str],
        device: torch.device,
        max_length: int,
        width: int = 0,
    ) -> dict[str, Tensor]:
        """States of all encoders, of `width` numbers, and pooled vectors of CLIP's; see
        `SD3Network.forward`."""
        # which the pipeline asks for the width of the zeros where there is no T5
        pipeline.transformer = SimpleNamespace(config=SimpleNamespace(joint_attention_dim=width))
        states, _, pooled, _ = pipeline.encode_prompt(
            text, None, None, device, 1, False, max_sequence_length=max_length
        )
        return {"states": states, "pooled": pooled}
