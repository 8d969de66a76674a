"""diffusers' `FluxTransformer2DModel` and `Flux2Transformer2DModel` as networks that predict
velocities (FLUX.1, FLUX.2)."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.network.velocity_network import VelocityNetwork

ATTENTION = {role: (f"attn.to_{role}", f"attn.add_{role}_proj") for role in "qkv"}
ATTENTION["o"] = ("attn.to_out.0", "attn.to_add_out")


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
    layer_roles = {
        **ATTENTION,
        "gate": ("ff.net.0.proj", "ff_context.net.0.proj"),
        "up": ("ff.net.0.proj", "ff_context.net.0.proj"),
        "down": ("ff.net.2", "ff_context.net.2"),
    }

    def forward(
        self,
        latents: Tensor,
        sigma: Tensor,
        states: Tensor,
        pooled: Tensor,
        source: Tensor | None = None,
    ) -> Tensor:
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts,
        `pooled` [B, P] of whole texts, `source` [B, D] of images that are edited."""
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
    """The transformer of a FLUX.1-Kontext, with the guidance of its publisher's example and of
    flow_grpo."""

    guidance = 2.5


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
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts."""
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
        """See `VelocityNetwork.to_decoder`; by the running statistics of its batch norm."""
        mean, deviation = statistics_of(vae)
        return F.pixel_shuffle(latents * deviation + mean, 2)

    def from_encoder(self, encoded: Tensor, vae: Any) -> Tensor:
        mean, deviation = statistics_of(vae)
        return (F.pixel_unshuffle(encoded, 2) - mean) / deviation


def grid_ids(height: int, width: int, device: torch.device) -> Tensor:
    """[height * width, 3]: 0, row and column of each token of an image."""
    sides = (torch.arange(side, device=device) for side in (1, height, width))
    return torch.cartesian_prod(*sides)


def statistics_of(vae: Any) -> tuple[Tensor, Tensor]:
    """Mean and deviation [4 C, 1, 1] of what an `AutoencoderKLFlux2` writes, 2 x 2 in a token."""
    norm = vae.bn
    deviation = (norm.running_var + vae.config.batch_norm_eps).sqrt()
    return norm.running_mean[:, None, None], deviation[:, None, None]
