"""What samplers and scoring ask of a network that predicts the velocity of latents.

A network of diffusers becomes one by a subclass that holds it as `transformer` and hides how that
network wants its inputs: packed or not, its scale and direction of time, the sign of its output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.models.network.network import Network
from mmrl.models.network.pipeline_parts import PipelineParts, count_parameters
from mmrl.types.guidance import Guidance


class VelocityNetwork(Network):
    """A network that predicts noise minus clean latents.

    Attributes:
        parts: text encoders and the decoder of latents, of a checkpoint whose weights are read.
        patch: latents along the side of a token.
    """

    transformer: Any
    parts: PipelineParts | None = None
    patch: int

    def build_transformer(self, kind: Callable[..., Any], config: Mapping[str, Any]) -> None:
        """Set `transformer`, of a class of diffusers, by what of a config this class takes."""
        self.transformer = kind(**{k: config[k] for k in signature(kind).parameters if k in config})
        self.public_config = dict(config)

    def draw_zeros(self, **shapes: Sequence[int]) -> dict[str, Tensor]:
        """Inputs of one row by name, and its noise level; see `Network.blank`."""
        shapes["sigma"] = ()
        return {key: torch.zeros(1, *own, device=self.device) for key, own in shapes.items()}

    @abstractmethod
    def forward(self, latents: Tensor, sigma: Tensor, **conditions: Tensor) -> Tensor:
        """The velocity of latents [B, …] at noise levels `sigma` [B] float32 from 0 to 1, where 1
        is noise; `conditions` [B, …] are what the layout of the family computes of texts."""

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """The guided velocity from those of the branches, the conditional one first."""
        return guidance.combine(branches)

    def to_decoder(self, latents: Tensor, vae: Any) -> Tensor:
        """What an autoencoder decodes, of latents [B, …] float32."""
        return latents / vae.config.scaling_factor + (vae.config.shift_factor or 0)

    def from_encoder(self, encoded: Tensor, vae: Any) -> Tensor:
        """The inverse of `to_decoder`."""
        return (encoded - (vae.config.shift_factor or 0)) * vae.config.scaling_factor

    def count_tokens(self, shape: Sequence[int]) -> int:
        """Tokens of a latent of a shape (…, height, width)."""
        return (shape[-2] // self.patch) * (shape[-1] // self.patch)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, in which latents are stored."""
        return next(self.parameters()).dtype

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        """Remember where the other parts of the pipeline are; they are read when they are used."""
        self.parts = PipelineParts(folder, dtype, torch.device(device), **self.part_options)

    def count_parts(self) -> int:
        """Parameters of text encoders and decoder."""
        return count_parameters(self.public_config, self.part_options.get("left_out", ()))

    def set_attention(self, implementation: str) -> None:
        """Choose among the kernels; diffusers' networks always take PyTorch's own."""
        super().set_attention(implementation)
        if implementation == "flex":
            raise ValueError("attn_implementation is 'flex'; diffusers' networks take sdpa or auto")
