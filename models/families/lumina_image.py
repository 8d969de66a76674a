"""Lumina-Image 2.0 (Alpha-VLLM/Lumina-Image-2.0; arXiv 2503.21758): family and network.

A checkpoint is the directory of a `Lumina2Pipeline`. A text is encoded behind the system prompt of
that pipeline, the empty one, of the branch without a text, alone. Its guidance takes the length of
the conditional velocity, in each row of a latent, as the pipeline does by default.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmrl.generation.flow.schedules import rule_of
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.families.latent_layouts import (
    check_channels,
    count_halvings,
    encode_each,
    latent_layouts,
)
from mmrl.models.families.sana import (
    KEYS,
    KIND,
    LAYOUTS,
    TOKEN_IDS,
    VOCAB_KEYS,
    count_codes,
    count_patch,
)
from mmrl.models.layouts.layout import Layout
from mmrl.models.network.velocity_network import VelocityNetwork
from mmrl.types.guidance import Guidance

__all__ = ["KEYS", "KIND", "LAYOUTS", "TOKEN_IDS", "VOCAB_KEYS", "count_codes", "count_patch"]
NAMES = ("Lumina2Pipeline", "Lumina2Text2ImgPipeline")
BLOCKS = ("context_refiner", "noise_refiner", "layers")


class LuminaImageNetwork(VelocityNetwork):
    """diffusers' `Lumina2Transformer2DModel`, whose time is 1 - sigma and output clean - noise."""

    layer_roles = {
        **{role: (f"attn.to_{role}",) for role in "qkv"},
        "o": ("attn.to_out.0",),
        "gate": ("feed_forward.linear_1",),
        "up": ("feed_forward.linear_3",),
        "down": ("feed_forward.linear_2",),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        from diffusers import Lumina2Transformer2DModel as kind

        super().__init__(config, kind, *BLOCKS)
        self.patch, rope = self.transformer.config.patch_size, self.transformer.rope_embedder
        with torch.device("cpu"):  # not of the state, so never on the meta device
            rope.freqs_cis = rope._precompute_freqs_cis(rope.axes_dim, rope.axes_lens, rope.theta)

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        """See `SanaNetwork.forward`."""
        with self.recomputed():
            return -self.transformer(
                hidden_states=latents.to(self.dtype),
                timestep=1 - sigma,
                encoder_hidden_states=states.to(self.dtype),
                encoder_attention_mask=mask,
            ).sample

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """See `VelocityNetwork.guide`."""
        found, known = guidance.combine(branches), branches[0]
        if len(branches) == 1:
            return found
        return found * (known.norm(dim=-1, keepdim=True) / found.norm(dim=-1, keepdim=True))

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `VelocityNetwork.shapes`."""
        config = self.transformer.config
        latents = (config.in_channels, self.patch, self.patch)
        return {"latents": latents, "states": (1, config.cap_feat_dim), "mask": (1,)}

    def blank(self) -> list[Mapping[str, Any]]:
        """See `Network.blank`; its text is not all padding."""
        [inputs] = super().blank()
        return [{**inputs, "mask": inputs["mask"].long() + 1}]

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position, a block keeps about 37 vectors of its width, of texts and images that are
        refined apart as if once; computed again, 1."""
        config = self.transformer.config
        blocks, vector = len(self.blocks) - config.num_refiner_layers, config.hidden_size * length
        kept = blocks + 4 if recompute else 37 * blocks
        return kept * vector * size, (50 if recompute else 25) * vector * size


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of a `Lumina2Pipeline`, by its name now or before."""
    return config.get("_class_name") in NAMES


def network(config: Mapping[str, Any]) -> LuminaImageNetwork:
    """The transformer. Raises ValueError: latents of other channels than the autoencoder's."""
    check_channels(read_number(config, "in_channels"), config["vae"].get("latent_channels"))
    return LuminaImageNetwork(config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    config = inputs.network.public_config
    sizes = count_halvings(config["vae"]), config["in_channels"], config["sample_size"]
    rule = rule_of(config["scheduler"], even=True)
    return latent_layouts(inputs, encode_text, rule, *sizes)


def encode_text(
    pipeline: Any, text: str | list[str], device: torch.device, max_length: int
) -> dict[str, Tensor]:
    """States of the last layer but one of Gemma and where they are not padding."""

    def encode(text: str) -> tuple[Tensor, Tensor]:
        found = pipeline.encode_prompt(
            text, not text, device=device, max_sequence_length=max_length
        )
        return found[:2] if text else found[2:]

    return encode_each(encode, text)
