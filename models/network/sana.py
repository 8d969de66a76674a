"""diffusers' `SanaTransformer2DModel` as a network that predicts velocities (Sana, SANA-1.5)."""

from torch import Tensor

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
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts,
        `mask` [B, n] is 0 where these are padding."""
        kind = self.dtype
        with self.recomputed():
            return self.transformer(
                latents.to(kind),
                encoder_hidden_states=states.to(kind),
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
