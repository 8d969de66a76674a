"""MAGVIT-v2 image tokenizer with a lookup-free quantiser, in the format of showlab/magvitv2.

An image becomes one code per patch of `downsample` x `downsample` pixels. The quantiser keeps the
sign of each latent channel: `code = sum_c [z_c > 0] * 2 ** (bits - 1 - c)`, so channel 0 is the
most significant bit and exactly zero counts as negative (https://arxiv.org/abs/2310.05737, 3.1).
Encoding always runs in float32: lower precision moves latents across zero and flips bits.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.image_tokenizers.magvit_config import MagvitConfig
from mmrl.models.image_tokenizers.magvit_network import Decoder, Encoder

# Convolutions outside oneDNN unfold their input: decode few enough images at once to limit it.
_COLUMN_ELEMENTS = 2**26


class LookupFreeQuantizer(nn.Module):
    """Signs of the latent channels as bits of a code; holds the table of all codes."""

    embedding: Tensor
    power_vals: Tensor

    def __init__(self, bits: int) -> None:
        super().__init__()
        powers = 2 ** torch.arange(bits - 1, -1, -1)
        table = (torch.arange(2**bits)[:, None] & powers).ne(0).float() * 2 - 1
        self.register_buffer("embedding", table)
        self.register_buffer("power_vals", powers)

    def codes(self, latent: Tensor) -> Tensor:
        """Map latents [B, bits, h, w] to row-major codes [B, h*w] int64."""
        bits = latent.flatten(2).mT > 0
        return (bits * self.power_vals).sum(-1)


class MagvitV2(ImageTokenizer):
    """The tokenizer: pixels to codes and back."""

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> "MagvitV2":
        return cls(MagvitConfig(**config))

    def to_config(self) -> dict[str, Any]:
        return asdict(self.config)

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        self.config, self.codebook_size = config, 2**config.bits
        self.downsample, self.channels = config.downsample, config.in_channels
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.quantize = LookupFreeQuantizer(config.bits)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Reconstruct pixels [B, in_channels, H, W] in [-1, 1] through the quantiser, for training;
        return the same in float32, and the latent before quantisation, to which the gradient of its
        signs is passed straight through."""
        latent = self.encode(pixels)
        signs = torch.where(latent > 0, 1.0, -1.0)
        return self.decode(latent + (signs - latent).detach()), latent

    def encode(self, pixels: Tensor) -> Tensor:
        """Map pixels [B, in_channels, H, W] in [-1, 1] to the latent before quantisation
        [B, bits, H/downsample, W/downsample], always in float32; errors of `check_pixels`."""
        self.check_pixels(pixels)
        with torch.autocast(pixels.device.type, enabled=False):
            return self.encoder(pixels.float())

    def decode(self, latent: Tensor) -> Tensor:
        """Map +1/-1 latents [B, bits, h, w] to float32 pixels of about [-1, 1]."""
        return self.decoder(latent).float()

    @torch.no_grad()
    def get_code(self, pixels: Tensor) -> Tensor:
        return self.quantize.codes(self.encode(pixels))

    @torch.no_grad()
    def decode_code(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        height, width = self.check_codes(codes, shape)
        latent = self.quantize.embedding[codes.long()].mT.reshape(len(codes), -1, height, width)
        columns = 9 * self.config.ch * height * width * self.downsample**2
        chunk = max(1, _COLUMN_ELEMENTS // columns)
        # without oneDNN, whose float32 convolutions round about twice as much on the CPU
        with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
            return torch.cat([self.decode(part) for part in latent.split(chunk)])

    def check_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        if not torch.equal(tensors["quantize.embedding"].float(), self.quantize.embedding):
            raise ValueError(
                "quantize.embedding is not the table of +1/-1 bits of a lookup-free quantiser with"
                " channel 0 as the most significant bit; take another checkpoint"
            )
