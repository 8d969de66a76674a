"""An autoencoder of clips of the shapes world that is written and not trained.

It is diffusers' `AutoencoderKLWan`, with weights by which it is linear: the latents of a square of
`PATCH` x `PATCH` pixels of a frame are its principal components among rendered clips. Nothing is
compressed in time. Its network normalises features and applies SiLU, with which it stays linear:
each component z has two features, z and -z, and silu(z) - silu(-z) = z; a constant feature much
larger than all others makes the norm a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from motion import draw_clip, split_compositions, wordings
from torch import Tensor

PATCH, CHANNELS, CLIPS, CONSTANT = 8, 32, 400, 1000.0
FEATURES = 2 * CHANNELS + 1
NETWORK: dict[str, Any] = {
    "base_dim": FEATURES,
    "z_dim": CHANNELS,
    "dim_mult": [1],
    "num_res_blocks": 0,
    "temperal_downsample": [],
    "patch_size": PATCH,
    "in_channels": 3 * PATCH**2,
    "out_channels": 3 * PATCH**2,
    "scale_factor_temporal": 1,
    "scale_factor_spatial": PATCH,
}


def build() -> Any:
    """The autoencoder, fitted to clips of training compositions."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan, patchify

    numbers = patchify(render_clips(), PATCH).movedim(1, -1).flatten(0, -2)
    mean = numbers.mean(0)
    _, deviations, axes = torch.linalg.svd(numbers - mean, full_matrices=False)
    axes, spread = axes[:CHANNELS], deviations[:CHANNELS] / len(numbers) ** 0.5
    moments = {"latents_mean": [0.0] * CHANNELS, "latents_std": spread.tolist()}
    vae = AutoencoderKLWan(**NETWORK, **moments)
    write_weights(vae, axes, mean)
    return vae


def render_clips() -> Tensor:
    """Pixels [CLIPS, 3, T, H, W] in [-1, 1]."""
    rng, pool = np.random.default_rng(0), split_compositions("train")[:CLIPS]
    clips = [draw_clip(wordings(clauses)[0]["include"], rng) for clauses in pool]
    pixels = torch.tensor(np.array([[np.asarray(frame) for frame in clip] for clip in clips]))
    return pixels.movedim(-1, 1) / 127.5 - 1


@torch.no_grad()
def write_weights(vae: Any, axes: Tensor, mean: Tensor) -> None:
    """Write the weights, of axes [CHANNELS, numbers of a patch] and their origin."""
    for name, values in vae.named_parameters():
        values.fill_(float(name.endswith("gamma")))
    both = torch.cat([torch.eye(CHANNELS), -torch.eye(CHANNELS), torch.zeros(1, CHANNELS)])
    read, constant = both.T * CONSTANT / FEATURES**0.5, CONSTANT * torch.eye(FEATURES)[-1]
    nothing = torch.zeros(CHANNELS)
    logvar = torch.cat([nothing, nothing - 20])
    set_layer(vae.encoder.conv_in, both @ axes, constant - both @ axes @ mean)
    set_layer(vae.encoder.conv_out, torch.cat([read, 0 * read]), logvar)
    set_layer(vae.quant_conv, torch.eye(2 * CHANNELS), 0 * logvar)
    set_layer(vae.post_quant_conv, torch.eye(CHANNELS), nothing)
    set_layer(vae.decoder.conv_in, both, constant)
    set_layer(vae.decoder.conv_out, axes.T @ read, mean)


def set_layer(layer: Any, matrix: Tensor, bias: Tensor) -> None:
    """Make a convolution one of single pixels of single frames; the last frame of a kernel is the
    present one."""
    side = layer.weight.shape[-1] // 2
    layer.weight[:, :, -1, side, side] = matrix
    layer.bias.copy_(bias)
