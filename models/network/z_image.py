"""diffusers' `ZImageTransformer2DModel` as a network that predicts velocities (Z-Image)."""

import torch
from torch import Tensor

from mmrl.models.network.velocity_network import VelocityNetwork


class ZImageNetwork(VelocityNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W]. Its time runs from noise
    at 0 to images at 1, and what it predicts is the velocity with the other sign."""

    kind = "ZImageTransformer2DModel"
    text_width, beside = "cap_feat_dim", ("length",)
    lists = ("noise_refiner", "context_refiner", "layers")
    layer_roles = {
        **{role: (f"attention.to_{role}",) for role in "qkv"},
        "o": ("attention.to_out.0",),
        **{"gate": ("feed_forward.w1",), "up": ("feed_forward.w3",), "down": ("feed_forward.w2",)},
    }

    @property
    def patch(self) -> int:
        return self.transformer.config.all_patch_size[0]

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, length: Tensor) -> Tensor:
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts, of
        which a text has `length` [B] int64. The host waits for it, because places of image tokens,
        and how many are computed, depend on it."""
        texts = zip(states.to(self.dtype), length.tolist(), strict=True)
        with self.recomputed():
            found = self.transformer(
                x=list(latents.to(self.dtype)[:, :, None]),
                t=1 - sigma,
                cap_feats=[text[:number] for text, number in texts],
                patch_size=self.patch,
            ).sample
        return -torch.stack(found)[:, :, 0]

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position a block keeps about 33 vectors of its width; computed again, what it is
        given. A refiner of texts and one of images see a row together."""
        vector, parts = self.transformer.dim * length * size, self.transformer
        layers = len(parts.layers) + len(parts.noise_refiner)
        kept, working = (layers + 4, 43) if recompute else (33 * layers, 22)
        return kept * vector, working * vector
