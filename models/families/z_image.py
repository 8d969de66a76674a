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
        """See `VelocityNetwork.forward`. The host waits for `length`, because places of image
        tokens, and how many are computed, depend on it."""
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


class ZImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, even = "ZImagePipeline", ZImageNetwork, True

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States, followed by zeros up to `max_length`, and numbers of the tokens of texts."""
        own = [*texts]  # in which the pipeline writes
        found, _ = pipeline.encode_prompt(own, device, False, max_sequence_length=max_length)
        states = torch.stack([F.pad(each, (0, 0, 0, max_length - len(each))) for each in found])
        return {"states": states, "length": torch.tensor([len(each) for each in found])}

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return config["all_patch_size"][0]
