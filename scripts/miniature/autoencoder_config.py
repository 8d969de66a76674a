"""Options of the objective of the autoencoder."""

from dataclasses import dataclass, field
from typing import Any

from mmrl.config import check


@dataclass(kw_only=True)
class AutoencoderConfig:
    """Options of the objective."""

    data: str = ""
    """Parquet file with a column `image`, or a folder of them."""
    image_size: int = 256
    """Images are resized on their shorter side and cropped in the middle to this square."""
    network: dict[str, Any] = field(default_factory=dict)
    """Arguments of diffusers' `AutoencoderKL`."""
    noise: float = 0.5
    """Largest deviation of the noise on latents."""
    moment_weight: float = 0.01
    """Weight w of the moments."""
    eval_images: int = 64
    """Images, the first ones, reconstructed at each evaluation."""

    def __post_init__(self) -> None:
        check(self.data != "", "objective.data", self.data, "the path of a parquet with images")
