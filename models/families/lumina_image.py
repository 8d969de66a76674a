"""Lumina-Image 2.0 (Alpha-VLLM/Lumina-Image-2.0; arXiv 2503.21758), family and network.

A checkpoint is the directory of a `Lumina2Pipeline`. A text is encoded alone, behind the system
prompt of that pipeline; the branch without a text has the empty one and no system prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.network.velocity_network import VelocityNetwork
from mmrl.types.guidance import Guidance


class LuminaImageNetwork(VelocityNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W]; its time is 1 - sigma, and
    its output clean - noise."""

    kind = "Lumina2Transformer2DModel"
    text_width, beside = "cap_feat_dim", ("mask",)
    lists = ("context_refiner", "noise_refiner", "layers")
    layer_roles = {
        **{role: (f"attn.to_{role}",) for role in "qkv"},
        "o": ("attn.to_out.0",),
        "gate": ("feed_forward.linear_1",),
        "up": ("feed_forward.linear_3",),
        "down": ("feed_forward.linear_2",),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        rope = self.transformer.rope_embedder
        with torch.device("cpu"):  # no buffer, so that it would stay on the meta device
            rope.freqs_cis = rope._precompute_freqs_cis(rope.axes_dim, rope.axes_lens, rope.theta)

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        with self.recomputed():
            return -self.transformer(
                hidden_states=latents.to(self.dtype),
                timestep=1 - sigma,
                encoder_hidden_states=states.to(self.dtype),
                encoder_attention_mask=mask.long(),  # which is summed
            ).sample

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """The guided velocity with the norm that it has without guidance, in each row of a latent,
        as is the pipeline's default."""
        found, known = guidance.combine(branches), branches[0]
        if guidance.branches == 1:
            return known
        return found * (known.norm(dim=-1, keepdim=True) / found.norm(dim=-1, keepdim=True))

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position a block keeps about 37 vectors of its width, of texts and images that are
        refined apart as if once; computed again, 1."""
        config = self.transformer.config
        blocks, vector = len(self.blocks) - config.num_refiner_layers, config.hidden_size * length
        kept = blocks + 4 if recompute else 37 * blocks
        return kept * vector * size, (50 if recompute else 25) * vector * size


class LuminaImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, even = "Lumina2Pipeline", LuminaImageNetwork, True

    def matches(self, config: Mapping[str, Any]) -> bool:
        """By the name of the pipeline, now or before."""
        return config.get("_class_name") in (self.pipeline, "Lumina2Text2ImgPipeline")

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of the last layer but one of Gemma and where they are not padding, of each text
        encoded alone."""
        found, given = [], {"device": device, "max_sequence_length": max_length}
        for each in texts:
            both = pipeline.encode_prompt(each, not each, **given)
            found.append(both[:2] if each else both[2:])
        states, masks = zip(*found, strict=True)
        return {"states": torch.cat(states), "mask": torch.cat(masks)}
