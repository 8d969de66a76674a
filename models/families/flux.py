"""FLUX.1 (black-forest-labs/FLUX.1-dev, FLUX.1-schnell, FLUX.1-Kontext-dev).

A checkpoint is the directory of a `FluxPipeline`, or of a `FluxKontextPipeline`, which edits
images, too: the source image has the size of the one that is written, where the pipeline takes a
size of its list. `cfg_scale` w is its `true_cfg_scale` 1 + w with an empty negative prompt; the
guidance that is embedded is a constant, see `FluxNetwork`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.text_to_latents import EditedLatents, TextToLatents
from mmrl.models.network.velocity_network import ATTENTION, FEED_FORWARD, VelocityNetwork


class FluxNetwork(VelocityNetwork):
    """The transformer of a FLUX.1, on latents [B, C, H, W] of which 2 x 2 are a token.

    Roles are those that flow_grpo and diffusers train; feed-forwards of single blocks have none.

    Attributes:
        guidance: that it was distilled from, an input of the network: the default of its pipeline.
            It is apart from `cfg_scale`, which takes a second pass.
        kept: vectors of its width that a double and a single block keep of a position.
        at_work: those that exist at a time without gradient.
    """

    kind, packed, beside = "FluxTransformer2DModel", True, ("pooled",)
    lists = ("transformer_blocks", "single_transformer_blocks")
    guidance: ClassVar[float] = 3.5
    kept: ClassVar[tuple[int, int]] = (24, 21)
    at_work: ClassVar[int] = 16
    patch = 2
    layer_roles = ATTENTION | FEED_FORWARD

    def forward(
        self,
        latents: Tensor,
        sigma: Tensor,
        states: Tensor,
        pooled: Tensor,
        source: Tensor | None = None,
    ) -> Tensor:
        kind, (height, width) = self.dtype, latents.shape[-2:]
        guidance = torch.full_like(sigma, self.guidance)
        ids = grid_ids(height // 2, width // 2, latents.device)
        tokens, number = F.pixel_unshuffle(latents.to(kind), 2).flatten(2).mT, len(ids)
        if source is not None:
            beside = self.unpack_source(source, latents.shape[1:])
            tokens = torch.cat([tokens, F.pixel_unshuffle(beside, 2).flatten(2).mT], 1)
            ids = torch.cat([ids, ids + ids.new_tensor([1, 0, 0])])
        with self.recomputed():
            found = self.transformer(
                hidden_states=tokens,
                timestep=sigma,
                guidance=guidance if self.transformer.config.guidance_embeds else None,
                pooled_projections=pooled.to(kind),
                encoder_hidden_states=states.to(kind),
                txt_ids=states.new_zeros(states.shape[1], 3),
                img_ids=ids,
            ).sample[:, :number]
        return F.pixel_shuffle(found.mT.unflatten(2, (height // 2, width // 2)), 2)

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """See `Network.count_activations`; computed again, a block keeps its input."""
        lists = [getattr(self.transformer, name) for name in self.lists]
        each = (1, 1) if recompute else self.kept
        kept = 3 + sum(len(own) * number for own, number in zip(lists, each, strict=True))
        vector = self.transformer.inner_dim * length * size
        return kept * vector, (self.kept[0] + 9 if recompute else self.at_work) * vector


class KontextNetwork(FluxNetwork):
    """The transformer of a FLUX.1-Kontext, with its publisher's and flow_grpo's guidance."""

    guidance = 2.5


class Flux(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made, even = "FluxPipeline", FluxNetwork, True

    def encode_text(
        self, pipeline: Any, texts: list[str], device: torch.device, max_length: int
    ) -> dict[str, Tensor]:
        """States of T5 and the pooled vector of CLIP."""
        states, pooled, _ = pipeline.encode_prompt(
            texts, None, device, max_sequence_length=max_length
        )
        return {"states": states, "pooled": pooled}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "in_channels") // 4

    def count_latents(self, config: Mapping[str, Any]) -> int:
        return 2


class FluxKontext(Flux):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"text_to_image": TextToLatents, "image_edit": EditedLatents}
    pipeline, made = "FluxKontextPipeline", KontextNetwork


def grid_ids(height: int, width: int, device: torch.device) -> Tensor:
    """[height * width, 3]: 0, row and column of each token of an image."""
    sides = (torch.arange(side, device=device) for side in (1, height, width))
    return torch.cartesian_prod(*sides)
