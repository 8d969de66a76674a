"""diffusers' `VQModel`, the image tokenizer of Lumina-DiMOO and aMUSEd, behind our interface.

A code is the nearest entry of a learned codebook. The network takes and gives pixels in [0, 1];
`get_code` and `decode_code` have them in [-1, 1] as every image tokenizer here.
"""

from collections.abc import Mapping
from typing import Any

import diffusers
import torch
from torch import Tensor

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer

_PIXELS = 2**20
"""Pixels that are encoded or decoded at once: one image of 1024 x 1024."""


class VQModel(ImageTokenizer, diffusers.VQModel):
    """The network of diffusers with the functions of an image tokenizer."""

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> "VQModel":
        vq = cls(**config)
        vq.codebook_size, vq.channels = vq.config.num_vq_embeddings, vq.config.in_channels
        vq.downsample = 2 ** (len(vq.config.block_out_channels) - 1)
        return vq

    def to_config(self) -> dict[str, Any]:
        return {key: value for key, value in self.config.items() if not key.startswith("_")}

    @torch.no_grad()
    def get_code(self, pixels: Tensor) -> Tensor:
        self.check_pixels(pixels)
        images = ((pixels.float() + 1) / 2).split(max(1, _PIXELS // pixels[0, 0].numel()))
        with torch.autocast(pixels.device.type, enabled=False):
            found = [self.quantize(self.encode(part).latents)[2][2] for part in images]
        return torch.cat(found).view(len(pixels), -1)

    @torch.no_grad()
    def decode_code(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        return self._decode(codes, shape) * 2 - 1

    @torch.no_grad()
    def decode_bytes(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        # rounded as diffusers does
        return (self._decode(codes, shape).clamp(0, 1) * 255).round().to(torch.uint8)

    def _decode(self, codes: Tensor, shape: tuple[int, int] | None) -> Tensor:
        """Map codes to float32 pixels of about [0, 1], [B, 3, H, W]."""
        height, width = self.check_codes(codes, shape)
        part = _PIXELS // self.downsample**2
        pixels = []
        for some in codes.long().split(max(1, part // (height * width))):
            grid = (len(some), height, width, self.post_quant_conv.in_channels)
            entries = self.quantize.get_codebook_entry(some.flatten(), grid)
            spatial = entries if self.config.norm_type == "spatial" else None
            pixels.append(self.decoder(self.post_quant_conv(entries), spatial).float())
        return torch.cat(pixels)
