"""Two ways to initialise a small tokenizer that make its codes few and stable.

In a small network the encoder changes faster than the decoder learns, and most codes are no longer
used. Codes that start as a hash of the patch (whitened random features, as in locality-sensitive
hashing) and an encoder that sees only its patch avoid that, within the public architecture.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.image_tokenizers.magvit import MagvitV2
from mmrl.randomness import generator


def restrict_to_patches(vq: MagvitV2) -> None:
    """Make a code a function of its own patch of pixels, within the public architecture.

    Keeps of every encoder kernel only the taps inside the patch (the middle one, and the upper left
    2x2 where the resolution halves), makes the middle blocks an identity, and gives the output norm
    opposite features around large opposite offsets, whose mean and deviation hardly depend on the
    image. What is switched off is zero and gets no gradient.

    Args:
        vq: a tokenizer with new weights, one group in its norms and no residual blocks in its
            encoder.
    """
    middle: Any = vq.encoder.mid
    middle.requires_grad_(False)
    with torch.no_grad():
        for block in (middle.block_1, middle.block_2):
            _zero(block.conv2)
        _zero(middle.attn_1.proj_out)
    convs = [vq.encoder.conv_in, *_downsampling(vq), vq.encoder.conv_out]
    for conv in convs:
        _keep_taps(conv.weight, slice(0, 2) if conv.stride == (2, 2) else slice(1, 2))
    _steady_norm(convs[-2], vq.encoder.norm_out)


def whiten_bits(vq: MagvitV2, pixels: Tensor, seed: int) -> None:
    """Set the encoder's last layer so that bits are centred, equally spread and uncorrelated.

    Distinct patches count with the square root of their frequency, so that a common background does
    not decide every bit. A random rotation spreads the strong directions over all bits.

    Args:
        vq: a tokenizer with new weights.
        pixels: [B, 3, H, W] float32 in [-1, 1], some hundreds of training images.
        seed: seed of the rotation.
    """
    with torch.no_grad():
        latent = vq.encode(pixels).movedim(1, -1).flatten(0, 2).double()
        weights = _patch_weights(pixels, vq.downsample)
        mean = (weights * latent).sum(0)
        covariance = (latent - mean).T @ (weights * (latent - mean))
        values, vectors = torch.linalg.eigh(covariance)
        # Directions far below the strongest one carry noise rather than content.
        scales = (values + 1e-2 * values.max()).rsqrt()
        random = torch.randn(len(mean), len(mean), generator=generator(seed, "rotation"))
        matrix = torch.linalg.qr(random.double()).Q @ torch.diag(scales) @ vectors.T
        last = vq.encoder.quant_conv
        weight, bias = last.weight[:, :, 0, 0].double(), last.bias.double()  # type: ignore[union-attr]
        last.weight.copy_((matrix @ weight)[:, :, None, None])
        last.bias.copy_(matrix @ (bias - mean))  # type: ignore[union-attr]


def _downsampling(vq: MagvitV2) -> list[nn.Conv2d]:
    convs = [m for m in vq.encoder.down.modules() if isinstance(m, nn.Conv2d)]
    return [conv for conv in convs if conv.stride == (2, 2)]


def _zero(conv: nn.Conv2d) -> None:
    for parameter in conv.parameters():
        nn.init.zeros_(parameter)


def _steady_norm(conv: nn.Conv2d, norm: nn.GroupNorm, offset: float = 8.0) -> None:
    """Let `norm`, of one group, of the output of `conv` be nearly an identity on its features.

    The second half of the channels is the negative of the first, so that the mean is the same for
    every image; offsets of both signs dominate the deviation, and the norm's own scale and shift
    take them away again. The offset is a power of two: exact in every stored precision.
    """
    half = conv.out_channels // 2
    signs = torch.ones(conv.out_channels)
    signs[1::2] = -1
    with torch.no_grad():
        conv.weight[half:] = -conv.weight[:half]
        conv.bias.copy_(signs * offset)  # type: ignore[union-attr]
        norm.weight.fill_(offset)
        norm.bias.copy_(-signs * offset)


def _keep_taps(weight: Tensor, taps: slice) -> None:
    mask = torch.zeros_like(weight)
    mask[:, :, taps, taps] = 1
    kept = mask[0, 0].sum()
    with torch.no_grad():
        # Fewer inputs per output: larger weights keep the variance of the default initialisation.
        weight.mul_(mask).mul_((mask[0, 0].numel() / kept).sqrt())
    weight.register_hook(lambda gradient: gradient * mask.to(gradient.device))


def _patch_weights(pixels: Tensor, side: int) -> Tensor:
    patches = pixels.unfold(2, side, side).unfold(3, side, side)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)
    _, kind, counts = patches.unique(dim=0, return_inverse=True, return_counts=True)
    weights = counts[kind].double() ** -0.5
    return (weights / weights.sum())[:, None]
