"""FLUX.2-klein (black-forest-labs/FLUX.2-klein-4B, -9B, and their base models).

A checkpoint is the directory of a `Flux2KleinPipeline`. Guidance is for the base models: their
pipeline's `guidance_scale` is `cfg_scale` + 1, and ignored by one that `is_distilled`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.generation.flow.schedules import SigmaRule
from mmrl.models.families.flux import Flux, FluxNetwork, grid_ids
from mmrl.models.network.velocity_network import ATTENTION


class Flux2Network(FluxNetwork):
    """The transformer of a FLUX.2-klein, on latents [B, 4 C, H, W] whose channels are of 2 x 2.

    Roles are those that UniRL trains: with `q` as with `up`, the one layer of a single block that
    computes queries, keys, values and the first half of its feed-forward; not its last one.
    """

    kind, beside = "Flux2Transformer2DModel", ()
    kept = (28, 25)
    at_work = 22
    patch = 1
    layer_roles = {
        **{role: (*ATTENTION[role], "attn.to_qkv_mlp_proj") for role in "qkv"},
        "o": ATTENTION["o"],
        "gate": ("ff.linear_in", "ff_context.linear_in", "attn.to_qkv_mlp_proj"),
        "up": ("ff.linear_in", "ff_context.linear_in", "attn.to_qkv_mlp_proj"),
        "down": ("ff.linear_out", "ff_context.linear_out"),
    }

    def forward(  # type: ignore[override]
        self, latents: Tensor, sigma: Tensor, states: Tensor
    ) -> Tensor:
        kind, (height, width) = self.dtype, latents.shape[-2:]
        number, device = states.shape[1], latents.device
        with self.recomputed():
            found = self.transformer(
                hidden_states=latents.to(kind).flatten(2).mT,
                timestep=sigma,
                guidance=None,
                encoder_hidden_states=states.to(kind),
                txt_ids=F.pad(torch.arange(number, device=device)[:, None], (3, 0)),
                img_ids=F.pad(grid_ids(height, width, device), (0, 1)),
            ).sample
        return found.mT.unflatten(2, (height, width))

    def to_decoder(self, latents: Tensor, vae: Any) -> Tensor:
        mean, deviation = statistics_of(vae)
        return F.pixel_shuffle(latents * deviation + mean, 2)

    def from_encoder(self, encoded: Tensor, vae: Any) -> Tensor:
        mean, deviation = statistics_of(vae)
        return (F.pixel_unshuffle(encoded, 2) - mean) / deviation


class Flux2Klein(Flux):
    """A family; see `LatentFamily`. Its latents are tokens, of four of the autoencoder's."""

    pipeline, made = "Flux2KleinPipeline", Flux2Network

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of three layers of Qwen3, side by side."""
        states, _ = pipeline.encode_prompt(texts, device, max_sequence_length=max_length)
        return {"states": states}

    def find_rule(self, config: Mapping[str, Any]) -> SigmaRule:
        return replace(super().find_rule(config), mu="fitted")

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return 2 * super().count_pixels(config)

    def count_side(self, config: Mapping[str, Any]) -> int:
        return 64  # as in the pipeline

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return 1


def statistics_of(vae: Any) -> tuple[Tensor, Tensor]:
    """Mean and deviation [4 C, 1, 1] of what an `AutoencoderKLFlux2` writes, 2 x 2 in a token."""
    norm = vae.bn
    deviation = (norm.running_var + vae.config.batch_norm_eps).sqrt()
    return norm.running_mean[:, None, None], deviation[:, None, None]
