"""FLUX.2-klein (black-forest-labs/FLUX.2-klein-4B, -9B, and their base models).

A checkpoint is the directory of a `Flux2KleinPipeline`. Guidance is for the base models: their
pipeline's `guidance_scale` is `cfg_scale` + 1, and ignored by one that `is_distilled`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import SigmaRule
from mmrl.models.families.flux import Flux
from mmrl.models.network.flux import Flux2Network


class Flux2Klein(Flux):
    """A family; see `LatentFamily`. Its latents are tokens, of four of the autoencoder's."""

    pipeline, made = "Flux2KleinPipeline", Flux2Network

    def encode_text(
        self, pipeline: Any, text: str | list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of three layers of Qwen3, side by side; see `Flux2Network.forward`."""
        states, _ = pipeline.encode_prompt(text, device, max_sequence_length=max_length)
        return {"states": states}

    def find_rule(self, config: Mapping[str, Any]) -> SigmaRule:
        return replace(super().find_rule(config), mu="fitted")

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return 2 * super().count_pixels(config)

    def count_side(self, config: Mapping[str, Any]) -> int:
        return 64  # as in the pipeline

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return 1
