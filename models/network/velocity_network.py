"""What samplers and scoring ask of a network that predicts the velocity of latents.

A network of diffusers becomes one by a subclass that holds it as `transformer` and hides how that
network wants its inputs: packed or not, its scale and direction of time, the sign of its output.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isqrt, prod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmrl.models.network.network import Network
from mmrl.models.network.pipeline_parts import (
    VAE,
    PipelineParts,
    add_frame,
    build_network,
    build_part,
    count_parameters,
)
from mmrl.types.guidance import Guidance

ATTENTION = {role: (f"attn.to_{role}", f"attn.add_{role}_proj") for role in "qkv"}
ATTENTION["o"] = ("attn.to_out.0", "attn.to_add_out")
_INTO = "ff.net.0.proj", "ff_context.net.0.proj"
FEED_FORWARD = {"gate": _INTO, "up": _INTO, "down": ("ff.net.2", "ff_context.net.2")}
"""Layers by their roles, of blocks that read images and texts side by side."""


class VelocityNetwork(Network):
    """A network that predicts noise minus clean latents.

    Args:
        config: of the checkpoint, see `mmrl.models.families.pipeline.read_pipeline`.

    Attributes:
        kind: name of the class of diffusers that is made of it.
        lists: names of the lists of its blocks.
        packed: whether `in_channels` of its config counts those of a whole token.
        text_width: key of its config that holds the numbers of a state of a text's token.
        beside: what `forward` takes of texts besides their states, of `pooled`, `mask`, `length`.
        parts: `PipelineParts` of a checkpoint whose weights are read.
    """

    kind: ClassVar[str]
    lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    packed: ClassVar[bool] = False
    text_width: ClassVar[str] = "joint_attention_dim"
    beside: ClassVar[tuple[str, ...]] = ()
    transformer: Any
    parts: Any = None

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.transformer = build_network(self.kind, config)
        self.blocks = [each for name in self.lists for each in getattr(self.transformer, name)]
        self.public_config = dict(config)

    @property
    def patch(self) -> int:
        """Latents along the side of a token."""
        return self.transformer.config.patch_size

    @abstractmethod
    def forward(self, latents: Tensor, sigma: Tensor, **conditions: Tensor) -> Tensor:
        """The velocity of latents [B, …] at noise levels `sigma` [B] float32 from 0 to 1, where 1
        is noise; `conditions` are what the layout of the family computes of prompts, out of
        `states` [B, n, W] of the tokens of texts, their `mask` [B, n], 0 where these are padding,
        or `length` [B] int64, `pooled` [B, P] of whole texts, and `source` [B, D] of images that
        are edited."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of each keyword of `forward` but sigma, a latent of one token and a text of one, without
        the batch."""
        config, side = self.transformer.config, self.patch
        channels = config.in_channels // (side**2 if self.packed else 1)
        whole = {"pooled": (config.get("pooled_projection_dim"),), "mask": (1,), "length": ()}
        own = {"latents": (channels, side, side), "states": (1, config[self.text_width])}
        return own | {name: whole[name] for name in self.beside}

    def blank(self) -> list[Mapping[str, Any]]:
        """See `Network.blank`; the text has its token."""
        shapes, device = {**self.shapes, "sigma": ()}, self.device
        made = {name: torch.zeros(1, *s, device=device) for name, s in shapes.items()}
        ones = {name: made[name].long() + 1 for name in ("mask", "length") if name in made}
        return [{**made, **ones}]

    def guide(self, branches: Sequence[Tensor], guidance: Guidance) -> Tensor:
        """The guided velocity from those of the branches, the conditional one first."""
        return guidance.combine(branches)

    def to_decoder(self, latents: Tensor, vae: Any) -> Tensor:
        """What an autoencoder decodes, of latents [B, …] float32."""
        return latents / vae.config.scaling_factor + (vae.config.get("shift_factor") or 0)

    def from_encoder(self, encoded: Tensor, vae: Any) -> Tensor:
        """The inverse of `to_decoder`."""
        return (encoded - (vae.config.get("shift_factor") or 0)) * vae.config.scaling_factor

    def encode_source(self, pixels: Tensor, shape: Sequence[int]) -> Tensor:
        """[1, D]: what a condition `source` holds for an image [3, H, W] in [-1, 1] beside a
        latent of a shape; here the latent of the image, flat."""
        return self.parts.encode_images(pixels[None], self.from_encoder).flatten(1)

    def unpack_source(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        """[B, …] of this shape: sources [B, D], of which a larger one may have made D larger."""
        return source[:, : prod(shape)].unflatten(1, tuple(shape)).to(self.dtype)

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

    def count_parts(self) -> dict[str, int]:
        return count_parameters(self.public_config, self.part_options.get("left_out", ()))

    def count_decoding(self, tokens: int, frames: int = 1, gradient: bool = False) -> float:
        """See `Network.count_decoding`; of any shape of so many tokens."""
        within = tokens // frames
        rows = next(n for n in range(isqrt(within), 0, -1) if within % n == 0)
        channels, *steps = self.blank()[0]["latents"].shape[1:]
        shape = channels, *[frames] * len(steps[:-2])
        shape = 1, *shape, rows * self.patch, within // rows * self.patch
        with torch.device("meta"):
            vae: Any = build_part(self.public_config[VAE]).requires_grad_(False)
            latents = torch.empty(shape, requires_grad=gradient)
        if self.part_options.get("tiled"):
            vae.enable_tiling()
        # without a gradient attention is one operation, as in a fused kernel
        with torch.inference_mode(not gradient), LiveBytes() as live:
            pixels = vae.decode(add_frame(self.to_decoder(latents, vae)[0], vae)).sample
            if gradient:
                pixels.sum().backward()
        return float(live.peak)

    def move_parts(self, device: torch.device | str) -> None:
        if self.parts is not None:
            self.parts.move(device)


class ChannelScaledNetwork(VelocityNetwork):
    """A network whose autoencoder, one of videos, has a mean and a deviation for each channel."""

    def to_decoder(self, latents: Tensor, vae: Any) -> Tensor:
        mean, deviation = self._statistics(latents, vae)
        return latents * deviation + mean

    def from_encoder(self, encoded: Tensor, vae: Any) -> Tensor:
        mean, deviation = self._statistics(encoded, vae)
        return (encoded - mean) / deviation

    def _statistics(self, latents: Tensor, vae: Any) -> list[Tensor]:
        """In the shape in which they apply to latents [B, C, …]."""
        shape = -1, *[1] * (latents.ndim - 2)
        numbers = vae.config.latents_mean, vae.config.latents_std
        return [latents.new_tensor(each).view(shape) for each in numbers]


class LiveBytes(TorchDispatchMode):
    """A context; `peak` is the most bytes of tensors alive at once that operations made in it."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._now, self._held = 0, 0, Counter[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._hold(storage._cdata, storage.nbytes(), 1)
                weakref.finalize(tensor, self._hold, storage._cdata, storage.nbytes(), -1)
        return made

    def _hold(self, storage: int, size: int, change: int) -> None:
        before, self._held[storage] = self._held[storage], self._held[storage] + change
        self._now += size * (bool(self._held[storage]) - bool(before))
        self.peak = max(self.peak, self._now)
