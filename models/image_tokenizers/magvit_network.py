"""Encoder and decoder of MAGVIT-v2 as published with Show-o and MMaDA (showlab/magvitv2).

A convolutional network without time embedding: residual blocks `GroupNorm - swish - conv` per
level, one self-attention between the two middle blocks, strided convolutions down, repetition of
pixels up. The attribute names are the keys of the public checkpoint.

Tokenizer: https://arxiv.org/abs/2310.05737; this network: https://arxiv.org/abs/2408.12528.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from mmrl.models.image_tokenizers.magvit_config import MagvitConfig

NORM_EPS = 1e-6


def swish(x: Tensor) -> Tensor:
    """Return `x * sigmoid(x)`; the fused kernel rounds differently from the public network."""
    return x * torch.sigmoid(x)


class ResidualBlock(nn.Module):
    """`x + conv(swish(norm(conv(swish(norm(x))))))`, with a 1x1 shortcut when widths differ."""

    def __init__(self, width_in: int, width_out: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, width_in, eps=NORM_EPS)
        self.conv1 = nn.Conv2d(width_in, width_out, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width_out, eps=NORM_EPS)
        self.conv2 = nn.Conv2d(width_out, width_out, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(width_in, width_out, 1) if width_in != width_out else None

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, width_in, h, w] to [B, width_out, h, w]."""
        hidden = self.conv1(swish(self.norm1(x)))
        hidden = self.conv2(swish(self.norm2(hidden)))
        return (x if self.nin_shortcut is None else self.nin_shortcut(x)) + hidden


class SpatialAttention(nn.Module):
    """One-head self-attention over all positions of a feature map, with a residual."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, width, eps=NORM_EPS)
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, width, h, w] to the same shape."""
        hidden = self.norm(x)
        q, k, v = (conv(hidden).flatten(2) for conv in (self.q, self.k, self.v))
        weights = (torch.bmm(q.mT, k) * q.shape[1] ** -0.5).softmax(dim=-1)
        return x + self.proj_out(torch.bmm(v, weights.mT).reshape(x.shape))


def middle(width: int, groups: int) -> nn.Module:
    """The coarsest stage: block, attention, block."""
    first, attention = ResidualBlock(width, width, groups), SpatialAttention(width, groups)
    last = ResidualBlock(width, width, groups)
    return nn.Sequential(OrderedDict(block_1=first, attn_1=attention, block_2=last))


def downsample(width: int) -> nn.Module:
    """Halve height and width; the zero padding goes to the right and to the bottom only."""
    conv = nn.Conv2d(width, width, 3, stride=2)
    return nn.Sequential(OrderedDict(pad=nn.ZeroPad2d((0, 1, 0, 1)), conv=conv))


def upsample(width: int) -> nn.Module:
    """Double height and width by repetition, then a convolution."""
    conv = nn.Conv2d(width, width, 3, padding=1)
    return nn.Sequential(OrderedDict(repeat=nn.Upsample(scale_factor=2.0), conv=conv))


class Level(nn.Module):
    """Residual blocks at one resolution, then an optional change of resolution."""

    def __init__(self, widths: tuple[int, int], blocks: int, groups: int) -> None:
        super().__init__()
        self.block = nn.ModuleList(
            ResidualBlock(widths[min(i, 1)], widths[1], groups) for i in range(blocks)
        )
        self.downsample: nn.Module | None = None
        self.upsample: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        resample = self.downsample or self.upsample
        return x if resample is None else resample(x)


class Encoder(nn.Module):
    """Pixels [B, in_channels, H, W] to latents [B, bits, H/f, W/f] with f = 2 ** (levels - 1)."""

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        groups, width = config.norm_groups, config.ch
        depths = config.encoder_num_res_blocks
        self.conv_in = nn.Conv2d(config.in_channels, width, 3, padding=1)
        self.down = nn.ModuleList()
        for mult, blocks in zip(config.encoder_ch_mult, depths, strict=True):
            level = Level((width, config.ch * mult), blocks, groups)
            width = config.ch * mult if blocks else width
            if len(self.down) < len(depths) - 1:
                level.downsample = downsample(width)
            self.down.append(level)
        self.mid = middle(width, groups)
        self.norm_out = nn.GroupNorm(groups, width, eps=NORM_EPS)
        self.conv_out = nn.Conv2d(width, config.bits, 3, padding=1)
        self.quant_conv = nn.Conv2d(config.bits, config.bits, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        """Map pixels to the latent before quantisation (any real value per bit)."""
        x = self.conv_in(pixels)
        for level in self.down:
            x = level(x)
        return self.quant_conv(self.conv_out(swish(self.norm_out(self.mid(x)))))


class Decoder(nn.Module):
    """Latents of +1/-1 [B, bits, h, w] to pixels [B, in_channels, h*f, w*f]."""

    def __init__(self, config: MagvitConfig) -> None:
        super().__init__()
        groups, depths = config.norm_groups, config.decoder_num_res_blocks
        width = config.ch * config.decoder_ch_mult[-1]
        self.conv_in = nn.Conv2d(config.bits, width, 3, padding=1)
        self.mid = middle(width, groups)
        levels: list[nn.Module] = []
        for index in reversed(range(len(depths))):
            width_out = config.ch * config.decoder_ch_mult[index]
            level = Level((width, width_out), depths[index], groups)
            width = width_out if depths[index] else width
            if index != 0:
                level.upsample = upsample(width)
            levels.append(level)
        self.up = nn.ModuleList(reversed(levels))
        self.norm_out = nn.GroupNorm(groups, width, eps=NORM_EPS)
        self.conv_out = nn.Conv2d(width, config.in_channels, 3, padding=1)
        self.post_quant_conv = nn.Conv2d(config.bits, config.bits, 1)

    def forward(self, latent: Tensor) -> Tensor:
        """Map a quantised latent to pixels of about [-1, 1]."""
        x = self.mid(self.conv_in(self.post_quant_conv(latent)))
        for index in reversed(range(len(self.up))):
            x = self.up[index](x)
        return self.conv_out(swish(self.norm_out(x)))
