"""SD3 and SD3.5 (stabilityai/stable-diffusion-3.5-medium and -large; arXiv 2403.03206).

A checkpoint is the directory of a `StableDiffusion3Pipeline`. Where its `text_encoder_3` is null,
T5's states are zeros, as in the pipeline itself.
"""

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.network.velocity_network import ATTENTION, FEED_FORWARD, VelocityNetwork

FIRST_ZERO = ("norm1.linear", "norm1_context.linear", "norm_out.linear", "proj_out")
"""Ends of the names of layers whose new weights are zero."""
CLIP_TOKENS = 77
"""Positions of a text beside those of T5."""


class SD3Network(VelocityNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W]."""

    kind, beside = "SD3Transformer2DModel", ("pooled",)
    layer_roles = FEED_FORWARD | {
        **{role: (*ATTENTION[role], f"attn2.to_{role}") for role in "qkv"},
        "o": (*ATTENTION["o"], "attn2.to_out.0"),
    }

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, pooled: Tensor) -> Tensor:
        with self.recomputed():
            return self.transformer(
                hidden_states=latents.to(self.dtype),
                timestep=sigma * 1000,
                encoder_hidden_states=states.to(self.dtype),
                pooled_projections=pooled.to(self.dtype),
            ).sample

    def draw_weights(self, generator: torch.Generator) -> None:
        """Keep what the layers of diffusers drew; modulations and the output begin at zero, so that
        every block begins as the identity (adaLN-Zero, arXiv 2212.09748)."""
        for name, layer in self.named_modules():
            if name.endswith(FIRST_ZERO):
                for parameter in layer.parameters():
                    torch.nn.init.zeros_(parameter)

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position, those of CLIP's 77 tokens among them, a block keeps about 25 vectors of
        its width and 8 more with a second attention; computed again, 1.3."""
        width, layers = self.transformer.inner_dim, len(self.blocks)
        vector = width * (length + CLIP_TOKENS) * size
        vectors = 25 * layers + 8 * len(self.transformer.config.dual_attention_layers)
        kept = 1.3 * layers if recompute else vectors
        return kept * vector, (33 if recompute else 17) * vector


class SD3(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, optional = "StableDiffusion3Pipeline", SD3Network, ("text_encoder_3",)

    def layout_options(self, config: Mapping[str, Any], options: LayoutConfig) -> dict[str, Any]:
        given = {"max_length": options.max_prompt_length, "width": config["joint_attention_dim"]}
        return {"encode_text": partial(self.encode_text, **given)}

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int, width: int = 0
    ) -> dict[str, Tensor]:
        """States of all encoders, of `width` numbers, and pooled vectors of CLIP's."""
        # which the pipeline asks for the width of the zeros where there is no T5
        pipeline.transformer = SimpleNamespace(config=SimpleNamespace(joint_attention_dim=width))
        states, _, pooled, _ = pipeline.encode_prompt(
            texts, None, None, device, 1, False, max_sequence_length=max_length
        )
        return {"states": states, "pooled": pooled}
