"""Human Preference Score v2 and v2.1 (Wu et al. 2023, arXiv:2306.09341), on stock open_clip.

    score = <f(image), g(prompt)>,   both of length one, no logit scale

The score is the raw cosine, about 0.2 to 0.35; benchmark tables show it times 100. The image is
scaled so that its longest side fits (bicubic on the float tensor, antialiased, not clamped) and
padded with zeros to a square, which is not what open_clip's own transform does. We deviate from the
original in two ways: the last normalisation and the dot product are float32 (the original computes
them in float16, with steps of 2.4e-4), and an image that already has the right longest side is
padded as well (the original fails on it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from PIL import Image

from mmrl.config import import_extra
from mmrl.rewards.networks.checkpoints import fill_network, find_checkpoint, read_weights
from mmrl.rewards.networks.dual_encoder import DualEncoder, EncoderReward, ReadsTarget
from mmrl.rewards.networks.open_clip_encoder import resolve_architecture
from mmrl.rewards.parsing.images import OPENAI_MEAN, OPENAI_STD, read_pixels

if TYPE_CHECKING:
    from torch import Tensor

FILES = {"v2.0": "HPS_v2_compressed.pt", "v2.1": "HPS_v2.1_compressed.pt"}


@dataclass(kw_only=True, eq=False)
class HPSReward(ReadsTarget, EncoderReward):
    """Human preference for an image given its prompt."""

    where: ClassVar[str] = "hps"

    version: Literal["v2.0", "v2.1"]
    """Which published checkpoint; the two differ in scale, so there is no default."""
    checkpoint: str = "xswu/HPSv2"
    """Hub id or directory with the file of that version, or the file itself."""
    model: str = "ViT-H-14"
    """open_clip architecture, or a directory with `open_clip_config.json`."""
    batch_size: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        open_clip = import_extra("open_clip", "clip")
        architecture = resolve_architecture(self.model, "hps.model")
        path = find_checkpoint(self.checkpoint, FILES[self.version], "hps.checkpoint")
        sizes: Any = open_clip.get_model_config(architecture)
        network: Any = open_clip.CLIP(**sizes)
        weights = read_weights(path, "hps.checkpoint", within="state_dict")
        # Older releases of open_clip stored the causal mask, which is a constant, with the weights.
        what = f"hps.checkpoint {path} does not fit hps.model"
        fill_network(network, weights, what, stale=("attn_mask",))
        size = network.visual.image_size
        side = size if isinstance(size, int) else size[0]
        tokenizer = open_clip.get_tokenizer(architecture)
        towers = network, tokenizer, lambda image: letterbox(image, side)
        self.encoder = DualEncoder(*towers, lambda pixels: fit(pixels, side), self)


def letterbox(image: Image.Image, side: int) -> Tensor:
    """An RGB image as [3, side, side] float32, see `fit`."""
    return fit(read_pixels(image), side)


def fit(pixels: Tensor, side: int) -> Tensor:
    """Pixels [3, H, W] in [0, 1] as [3, side, side]: longest side scaled to `side`, zeros around,
    normalised."""
    from torch.nn import functional as F

    scale = side / max(pixels.shape[1:])
    height, width = (max(1, round(n * scale)) for n in pixels.shape[1:])
    if (height, width) != tuple(pixels.shape[1:]):
        pixels = F.interpolate(
            pixels[None], (height, width), mode="bicubic", align_corners=False, antialias=True
        )[0]
    top, left = (side - height) // 2, (side - width) // 2
    pixels = F.pad(pixels, (left, side - width - left, top, side - height - top))
    mean, std = (pixels.new_tensor(each)[:, None, None] for each in (OPENAI_MEAN, OPENAI_STD))
    return (pixels - mean) / std
