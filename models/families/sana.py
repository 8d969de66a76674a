"""Sana and SANA-1.5 (Efficient-Large-Model/Sana_600M_512px_diffusers; arXiv 2410.10629).

A checkpoint is the directory of a `SanaPipeline`. A text is encoded behind the instruction that is
the default of that pipeline, and the empty one, of the branch without a text, alone. Images have
the size that is asked for, as with the pipeline's `use_resolution_binning=False`.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.velocity_network import VelocityNetwork

TEXT_TOKENS = 300
"""Positions of a text, of the pipeline."""


class SanaNetwork(VelocityNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W].

    Layers with roles are those of attention; the feed-forward is of convolutions.
    """

    kind = "SanaTransformer2DModel"
    text_width, beside = "caption_channels", ("mask",)
    layer_roles = {
        **{role: (f"attn1.to_{role}", f"attn2.to_{role}") for role in "qkv"},
        "o": ("attn1.to_out.0", "attn2.to_out.0"),
    }

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        with self.recomputed():
            return self.transformer(
                latents.to(self.dtype),
                encoder_hidden_states=states.to(self.dtype),
                encoder_attention_mask=mask,
                timestep=sigma * 1000 * self.transformer.config.timestep_scale,
            ).sample

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a token of an image, a block keeps about 37 vectors of its width, and 6 more where it
        normalises queries and keys; computed again, 1. Of one of a text, 2; all blocks share 7."""
        config, text = self.transformer.config, min(TEXT_TOKENS, length // 2)
        image, layers = length - text, len(self.blocks)
        vector = config.num_attention_heads * config.attention_head_dim * size
        inside = image if recompute else (43 if config.qk_norm else 37) * image + 2 * text
        kept = layers * inside + 3 * image + 7 * text
        return kept * vector, (50 if recompute else 25) * image * vector


class Sana(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made = "SanaPipeline", SanaNetwork

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of Gemma and where they are not padding, of each text encoded alone."""
        key, defaults = "complex_human_instruction", signature(type(pipeline).__call__).parameters
        given = {"device": device, "max_sequence_length": max_length}
        found = []
        for each in texts:
            hints = {key: defaults[key].default if each else None}
            found.append(pipeline.encode_prompt(each, False, **given, **hints))
        states, masks, *_ = zip(*found, strict=True)
        return {"states": torch.cat(states), "mask": torch.cat(masks)}
