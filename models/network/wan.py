"""diffusers' `WanTransformer3DModel` as a network that predicts velocities (Wan 2.1 and 2.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.network.velocity_network import ChannelScaledNetwork

TEXT_TOKENS = 512
"""Positions of a text, of the pipeline; zeros behind it are read as well."""


class Rotation(nn.Module):
    """The rotary embedding of a transformer, made for each device where it is asked for: it is no
    weight, so no cast and no meta device may reach it."""

    def __init__(self, public: Any) -> None:
        super().__init__()
        sizes = public.attention_head_dim, public.patch_size, public.max_seq_len
        self.made, self.sizes, self.kind = dict[torch.device, Any](), sizes, type(public)

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Of each token of latents [B, C, T, H, W]."""
        if latents.device not in self.made:
            with torch.inference_mode(False), torch.device(latents.device):
                self.made[latents.device] = self.kind(*self.sizes)
        return self.made[latents.device](latents)


class WanNetwork(ChannelScaledNetwork):
    """The transformer of a config of diffusers, on latents [B, C, T, H, W]; or two, of which
    the second predicts below the noise level `boundary_ratio` of the config."""

    kind, lists = "WanTransformer3DModel", ("blocks",)
    layer_roles = {
        **{role: (f"attn1.to_{role}", f"attn2.to_{role}") for role in "qkv"},
        "o": ("attn1.to_out.0", "attn2.to_out.0"),
        **dict.fromkeys(("gate", "up"), ("ffn.net.0.proj",)),
        "down": ("ffn.net.2",),
    }

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.transformer.rope = Rotation(self.transformer.rope)
        second = config.get("transformer_2")
        self.transformer_2: Any = None if second is None else self.build(second)
        self.boundary, self.can_shard = config.get("boundary_ratio") or 0.0, second is None
        if second is not None:
            self.transformer_2.rope = Rotation(self.transformer_2.rope)
            self.blocks = [*self.blocks, *self.transformer_2.blocks]

    def forward(self, latents: Tensor, sigma: Tensor, states: Tensor) -> Tensor:
        """See `VelocityNetwork.forward`; `states` [B, n, W] are those of the tokens of texts, with
        zeros behind them."""
        with self.recomputed():
            if self.transformer_2 is None:
                return self._predict(self.transformer, latents, sigma, states)
            high, found = sigma >= self.boundary, torch.zeros_like(latents, dtype=self.dtype)
            for expert, chosen in ((self.transformer, high), (self.transformer_2, ~high)):
                rows = chosen.nonzero().flatten()
                unused = len(rows) == 0
                if unused and not torch.is_grad_enabled():
                    continue
                rows = rows.new_zeros(1) if unused else rows  # a gradient, of zeros, in any case
                own = self._predict(expert, latents[rows], sigma[rows], states[rows])
                found = found.index_add(0, rows, (own * (not unused)).to(found.dtype))
            return found

    def _predict(self, expert: Any, latents: Tensor, sigma: Tensor, states: Tensor) -> Tensor:
        return expert(
            hidden_states=latents.to(self.dtype),
            timestep=sigma * 1000,
            encoder_hidden_states=states.to(self.dtype),
        ).sample

    @property
    def patch(self) -> int:
        return self.transformer.config.patch_size[-1]

    def count_tokens(self, shape: Sequence[int]) -> int:
        """Tokens of a latent of a shape (channels, frames, height, width)."""
        return shape[-3] // self.transformer.config.patch_size[0] * super().count_tokens(shape)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        config = self.transformer.config
        return {
            "latents": (config.in_channels, *config.patch_size),
            "states": (1, config.text_dim),
        }

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Of a token of a video, a block keeps about 22 vectors of its width and 2 of that of its
        feed-forward; computed again, 1. Of one of a text, 4; all blocks share 11."""
        config, text = self.transformer.config, min(TEXT_TOKENS, length // 2)
        width, layers = config.num_attention_heads * config.attention_head_dim, config.num_layers
        block, video = 22 + 2 * config.ffn_dim / width, length - text
        inside = video if recompute else block * video + 4 * text
        kept = layers * inside + 4 * video + 11 * text
        return kept * width * size, (1.4 if recompute else 0.7) * block * video * width * size
