"""diffusers' `QwenImageTransformer2DModel` as a network that predicts velocities (Qwen-Image)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrl.models.network.velocity_network import ChannelScaledNetwork
from mmrl.types.guidance import Guidance


class QwenImageNetwork(ChannelScaledNetwork):
    """The transformer of a config of diffusers, on latents [B, C, H, W] that it reads as tokens of
    two by two, channel by channel."""

    kind, packed, beside = "QwenImageTransformer2DModel", True, ("mask",)
    layer_roles = {
        **{role: (f"attn.to_{role}", f"attn.add_{role}_proj") for role in "qkv"},
        "o": ("attn.to_out.0", "attn.to_add_out"),
        **dict.fromkeys(("gate", "up"), ("img_mlp.net.0.proj", "txt_mlp.net.0.proj")),
        "down": ("img_mlp.net.2", "txt_mlp.net.2"),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        place: Any = self.transformer.pos_embed
        with torch.device("cpu"):  # no buffers, so that they would stay on the meta device
            self.transformer.pos_embed = type(place)(place.theta, place.axes_dim, place.scale_rope)

    def forward(
        self,
        latents: Tensor,
        sigma: Tensor,
        states: Tensor,
        mask: Tensor,
        source: Tensor | None = None,
    ) -> Tensor:
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts,
        `mask` [B, n] is 0 where these are padding, `source` [B, D] of images that are edited."""
        grids = [F.pixel_unshuffle(latents, self.patch).to(self.dtype)]
        height, width = grids[0].shape[-2:]
        if source is not None:
            beside = self.unpack_source(source, latents.shape[1:])
            grids.append(F.pixel_unshuffle(beside, self.patch))
        with self.recomputed():
            found = self.transformer(
                hidden_states=torch.cat([grid.flatten(2) for grid in grids], 2).mT,
                timestep=sigma,
                encoder_hidden_states=states.to(self.dtype),
                encoder_hidden_states_mask=mask.bool(),
                img_shapes=[[(1, height, width)] * len(grids)] * len(latents),
            ).sample[:, : height * width]
        return F.pixel_shuffle(found.transpose(1, 2).unflatten(2, (height, width)), self.patch)

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """Each token of the guided velocity keeps the norm that it has without guidance, as in
        diffusers' pipeline, whose `true_cfg_scale` is w + 1."""
        if guidance.branches == 1:
            return branches[0]
        own, guided = (
            F.pixel_unshuffle(x, self.patch) for x in (branches[0], guidance.combine(branches))
        )
        norms = (torch.linalg.vector_norm(x, dim=1, keepdim=True) for x in (own, guided))
        scale = next(norms) / next(norms).clamp_min(torch.finfo(guided.dtype).tiny)
        return F.pixel_shuffle(guided * scale, self.patch)

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a position a block keeps about 24 vectors of its width; computed again, what it is
        given."""
        vector, layers = self.transformer.inner_dim * length * size, len(self.blocks)
        kept, working = (layers + 3, 33) if recompute else (24 * layers + 4, 17)
        return kept * vector, working * vector
