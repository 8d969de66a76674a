"""Options of the `reconstruction` objective."""

from dataclasses import dataclass, field
from typing import Literal

from mmrl.config import check
from mmrl.models.image_tokenizers.magvit_config import MagvitConfig


@dataclass(kw_only=True)
class ReconstructionConfig:
    """Training of an image tokenizer to reconstruct images."""

    data: str = ""
    """Parquet file with a column `image`, or a folder of them."""
    image_size: int = 256
    """Images are resized on their shorter side and cropped in the middle to this square."""
    vq: str = ""
    """Directory or hub id of a tokenizer to continue from; a new network when empty."""
    network: MagvitConfig = field(default_factory=MagvitConfig)
    """Sizes of a new network; unused when `vq` is given."""
    patch_encoder: bool = False
    """Restrict a new encoder to its own patch of pixels: fewer and steadier codes."""
    whiten_images: int = 0
    """Start a new encoder with bits whitened on this many training images; 0 is off."""
    train_encoder: bool = True
    """Train the encoder; if not, only the decoder learns and the codes never change."""
    pixel_loss: Literal["l1", "l2"] = "l1"
    """Distance between pixels."""
    commitment_weight: float = 0.1
    """Weight w_c of the commitment terms."""
    commitment_beta: float = 0.25
    """Weight beta of the second commitment term."""
    entropy_weight: float = 0.1
    """Weight w_e of the entropy terms."""
    eval_images: int = 64
    """Images, the first ones, reconstructed at each evaluation."""
    save_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Stored precision of the saved weights."""

    def __post_init__(self) -> None:
        check(self.data != "", "objective.data", self.data, "the path of a parquet with images")
        check(self.image_size > 0, "objective.image_size", self.image_size, "positive")
        blocks = self.network.encoder_num_res_blocks
        check(
            not (self.patch_encoder and any(blocks)),
            "objective.network.encoder_num_res_blocks",
            blocks,
            "zero in every level for patch_encoder=true",
            "The norms of residual blocks see the whole image.",
        )
        groups = self.network.norm_groups
        check(
            not self.patch_encoder or groups == 1,
            "objective.network.norm_groups",
            groups,
            "1 for patch_encoder=true",
        )
        check(self.eval_images > 0, "objective.eval_images", self.eval_images, "positive")
