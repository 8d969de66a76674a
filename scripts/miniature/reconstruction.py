"""Training of the image tokenizer: reconstruct images through a lookup-free quantiser.

    loss = |decode(q) - x| + w_c (|z - sg q|^2 + beta |sg z - q|^2) + w_e (H(bit) - H(mean bit))

with q = sign(z), the gradient of the decoder passed straight through to z. H(bit) is the mean
entropy of a bit under p(bit = 1) = sigmoid(4 z), the softmax over the squared distances to -1 and
+1; it makes bits certain. H(mean bit) is the entropy of its mean over the micro-batch of one
device; it keeps every bit in use.
Entropy terms: https://arxiv.org/abs/2310.05737, section 3.1; weights as in showlab/magvitv2. The
second commitment term has no gradient here, since the signs are not trained; it is kept so that the
reported value is the published one. Unlike the paper there is no adversarial or perceptual loss.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmrl.config import check
from mmrl.data.stream import stream_positions, stream_rows
from mmrl.models.image_tokenizers.image_tokenizer import load_vq, save_vq
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from mmrl.objectives.policy_start import outline_tokenizer
from scripts.miniature.columns import ImageRows, draw_reconstruction
from scripts.miniature.reconstruction_config import ReconstructionConfig
from scripts.miniature.tokenizer_start import restrict_to_patches, whiten_bits


class Reconstruction:
    """Pixel, commitment and entropy loss of a MAGVIT-v2 tokenizer on a parquet of images."""

    Config = ReconstructionConfig

    def __init__(self, config: ReconstructionConfig, seed: int, batch_size: int) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self.images = ImageRows(config.data, config.image_size)
        vq = load_vq(config.vq) if config.vq else new_tokenizer(config.network, seed)
        assert isinstance(vq, MagvitV2)
        self.vq = vq.to(memory_format=torch.channels_last)
        check(
            config.image_size % self.vq.downsample == 0,
            "objective.image_size",
            config.image_size,
            f"a multiple of {self.vq.downsample}, the downsampling factor of the network",
        )
        self.vq.train().requires_grad_(True)
        if not config.vq:
            self._start()
        if not config.train_encoder:
            self.vq.encoder.requires_grad_(False)
        self.module: nn.Module = self.vq

    @staticmethod
    def outline(config: ReconstructionConfig) -> tuple[nn.Module | None, str]:
        """The tokenizer without weights, and how many images there are."""
        count = len(ImageRows(config.data, config.image_size))
        with torch.device("meta"):
            network = outline_tokenizer(config.vq) if config.vq else MagvitV2(config.network)
        return network, f"{count} images of {config.data}"

    def batch(self, step: int, rank: int, world_size: int) -> Tensor:
        """Return pixels [batch_size, 3, image_size, image_size] float32 in [-1, 1]."""
        places = stream_positions(step, rank, world_size, self.batch_size)
        pixels = self.images.pixels(stream_rows(self.seed, places, len(self.images)))
        return pixels.contiguous(memory_format=torch.channels_last)

    def loss(self, batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and its parts for pixels [B, 3, H, W] in [-1, 1]."""
        pixels, latent = self.module(batch)
        distance = F.l1_loss if self.config.pixel_loss == "l1" else F.mse_loss
        pixel = distance(pixels.float(), batch)
        commitment = commitment_loss(latent, self.config.commitment_beta)
        entropy = entropy_loss(latent)
        total = pixel + self.config.commitment_weight * commitment
        total = total + self.config.entropy_weight * entropy
        parts = {"pixel": pixel, "commitment": commitment, "entropy": entropy}
        return total, {f"loss/{name}": value.detach() for name, value in parts.items()}

    def _start(self) -> None:
        if self.config.patch_encoder:
            restrict_to_patches(self.vq)
        if self.config.whiten_images:
            count = min(self.config.whiten_images, len(self.images))
            whiten_bits(self.vq, self.images.pixels(list(range(count))), self.seed)
        if not self.config.train_encoder:
            # Rounded now, so that the codes the decoder learns are those of the stored weights.
            self.vq.encoder.to(getattr(torch, self.config.save_dtype)).float()

    def save(self, directory: Path) -> None:
        """Write the tokenizer as config.json and model.safetensors."""
        save_vq(self.vq, directory, self.config.save_dtype)

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Reconstruct the first images; write originals above reconstructions as a PNG."""
        count = min(self.config.eval_images, len(self.images))
        pixels = self.images.pixels(list(range(count)))
        pixels = pixels.to(next(self.vq.parameters()).device)
        codes = self.vq.get_code(pixels)
        side = self.config.image_size // self.vq.downsample
        decoded = self.vq.decode_code(codes, shape=(side, side))
        shares = codes.flatten().bincount().float()
        shares = shares[shares > 0] / codes.numel()
        return {
            "eval/pixel_l1": draw_reconstruction(pixels, decoded, directory, step),
            "eval/codes_used": float(len(shares)),
            "eval/perplexity": float(torch.exp(-(shares * shares.log()).sum())),
        }


def new_tokenizer(config: MagvitConfig, seed: int) -> MagvitV2:
    """Return a tokenizer with new weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MagvitV2(config)


def commitment_loss(latent: Tensor, beta: float) -> Tensor:
    """Return mean squared distance of latents to their signs, times 1 + beta in value."""
    signs = torch.where(latent > 0, 1.0, -1.0)
    return F.mse_loss(latent, signs) + beta * F.mse_loss(latent.detach(), signs)


def entropy_loss(latent: Tensor) -> Tensor:
    """Return mean entropy of a bit minus entropy of the batch mean, for latents [B, bits, h, w]."""
    logits = 4 * latent
    probability = torch.sigmoid(logits)
    certainty = (F.softplus(logits) - logits * probability).mean()
    # A saturated bit has an infinite slope of its entropy; the clamp keeps the gradient finite.
    mean = probability.mean(dim=(0, 2, 3)).clamp(1e-6, 1 - 1e-6)
    diversity = -(mean * mean.log() + (1 - mean) * (1 - mean).log()).mean()
    return certainty - diversity
