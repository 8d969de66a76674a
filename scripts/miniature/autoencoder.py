"""Training of the autoencoder of the tiny latent model: diffusers' `AutoencoderKL` on images.

    loss = |decode(z + noise) - x| + (decode(z + noise) - x)^2 + w (mean(z)^2 + max(0, E z^2 - 1))

with z the mean of the posterior and Gaussian noise of a deviation drawn up to `noise` for each
image: the decoder has to bear latents that a sampler leaves a little noisy. The last term, a mean
over channels, holds their moments; there is no other bottleneck. The variance of the posterior is
held near 1 and unused.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor, nn

from mmrl.data.stream import stream_positions, stream_rows
from mmrl.randomness import generator
from scripts.miniature.autoencoder_config import AutoencoderConfig
from scripts.miniature.columns import ImageRows, draw_reconstruction


class Autoencoder:
    """Reconstruction of the images of a parquet file through noisy latents."""

    Config = AutoencoderConfig

    def __init__(self, config: AutoencoderConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self.images = ImageRows(config.data, config.image_size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            vae: Any = AutoencoderKL(**config.network)
        self.vae = vae.to(memory_format=torch.channels_last)
        self.module: nn.Module = self.vae

    @staticmethod
    def outline(config: AutoencoderConfig) -> tuple[nn.Module | None, str]:
        """The autoencoder without weights, and how many images there are."""
        with torch.device("meta"):
            network = AutoencoderKL(**config.network)
        return network, f"{len(ImageRows(config.data, config.image_size))} images of {config.data}"

    def batch(self, step: int, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
        """Pixels [batch_size, 3, H, W] float32 in [-1, 1], and the noise of their latents."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        pixels = self.images.pixels(stream_rows(self.seed, places, len(self.images)))
        draw, config = generator(self.seed, "noise", step, rank, world_size), self.vae.config
        side = pixels.shape[-1] // 2 ** (len(config.block_out_channels) - 1)
        noise = torch.randn(len(pixels), config.latent_channels, side, side, generator=draw)
        level = self.config.noise * torch.rand(len(pixels), 1, 1, 1, generator=draw)
        return pixels.contiguous(memory_format=torch.channels_last), noise * level

    def loss(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts."""
        pixels, noise = (each.to(next(self.vae.parameters()).device) for each in batch)
        mean, variance = self.vae.encoder(pixels).chunk(2, 1)
        difference = self.vae.decoder(mean + noise) - pixels
        pixel = difference.abs().mean() + difference.square().mean()
        held = mean.mean((0, 2, 3)).square() + (mean.square().mean((0, 2, 3)) - 1).clamp(min=0)
        moments = held.mean() + 0.01 * variance.square().mean()
        parts = {"loss/pixel": pixel.detach(), "loss/moments": moments.detach()}
        return pixel + self.config.moment_weight * moments, parts

    def save(self, directory: Path) -> None:
        """Write the autoencoder as diffusers does, in bfloat16, with the scale and shift of its
        latents."""
        latents = self._encode(min(512, len(self.images)))
        scale, shift = 1 / float(latents.std()), float(latents.mean())
        self.vae.register_to_config(scaling_factor=scale, shift_factor=shift)
        copy.deepcopy(self.vae).to(torch.bfloat16).save_pretrained(directory)

    @torch.no_grad()
    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Reconstruct the first images; write originals above reconstructions as a PNG."""
        count = min(self.config.eval_images, len(self.images))
        pixels, latents = self.images.pixels(list(range(count))), self._encode(count)
        decoded = self.vae.decoder(latents).cpu()
        return {"eval/pixel_l1": draw_reconstruction(pixels, decoded, directory, step)}

    @torch.no_grad()
    def _encode(self, count: int) -> Tensor:
        pixels = self.images.pixels(list(range(count))).to(next(self.vae.parameters()).device)
        return self.vae.encoder(pixels).chunk(2, 1)[0]
