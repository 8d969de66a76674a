"""diffusers' `SD3Transformer2DModel` as a network that predicts velocities (SD3, SD3.5)."""

import torch
from torch import Tensor

from mmrl.models.network.velocity_network import VelocityNetwork

ATTENTION = {
    **{role: (f"attn.to_{role}", f"attn.add_{role}_proj", f"attn2.to_{role}") for role in "qkv"},
    "o": ("attn.to_out.0", "attn.to_add_out", "attn2.to_out.0"),
}

FIRST_ZERO = ("norm1.linear", "norm1_context.linear", "norm_out.linear", "proj_out")
"""Ends of the names of layers whose new weights are zero."""


CLIP_TOKENS = 77
"""Positions of a text beside those of T5."""


class SD3Network(VelocityNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W]."""

    kind, beside = "SD3Transformer2DModel", ("pooled",)
    layer_roles = {
        **ATTENTION,
        "gate": ("ff.net.0.proj", "ff_context.net.0.proj"),
        "up": ("ff.net.0.proj", "ff_context.net.0.proj"),
        "down": ("ff.net.2", "ff_context.net.2"),
    }

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, pooled: Tensor) -> Tensor:
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts,
        `pooled` [B, P] of whole texts."""
        kind = self.dtype
        with self.recomputed():
            return self.transformer(
                hidden_states=latents.to(kind),
                timestep=sigma * 1000,
                encoder_hidden_states=states.to(kind),
                pooled_projections=pooled.to(kind),
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
