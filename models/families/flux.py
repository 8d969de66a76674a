"""FLUX.1 (black-forest-labs/FLUX.1-dev, FLUX.1-schnell, FLUX.1-Kontext-dev).

A checkpoint is the directory of a `FluxPipeline`, or of a `FluxKontextPipeline`, which edits
images, too: the source image has the size of the one that is written, where the pipeline takes a
size of its list. `cfg_scale` w is its `true_cfg_scale` 1 + w with an empty negative prompt; the
guidance that is embedded is a constant, see `mmrl.models.network.flux.FluxNetwork`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.from_image import EditedLatents
from mmrl.models.layouts.text_to_latents import TextToLatents
from mmrl.models.network.flux import FluxNetwork, KontextNetwork


class Flux(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, even = "FluxPipeline", FluxNetwork, True

    def encode_text(
        self, pipeline: Any, text: str | list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of T5 and the pooled vector of CLIP; see `FluxNetwork.forward`."""
        states, pooled, _ = pipeline.encode_prompt(
            text, None, device, max_sequence_length=max_length
        )
        return {"states": states, "pooled": pooled}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "in_channels") // 4

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return 2


class FluxKontext(Flux):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"text_to_image": TextToLatents, "image_edit": EditedLatents}
    pipeline, made = "FluxKontextPipeline", KontextNetwork
