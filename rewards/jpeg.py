"""JPEG size: how few, or how many, kilobytes an image takes (Black et al. 2023, DDPO,
arXiv:2305.13301).

    incompressibility = bytes of the image as JPEG of quality 95 / 1000,   compressibility = -that

Needs no model and no prompt, and rises steadily when a run works: the reward to debug a run with.
The score is in kilobytes, about 5 to 150 for 512 pixels a side; flow_grpo's `jpeg_compressibility`
is the same with a `scale` of 1/500 in the configuration entry.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from mmrl.config import Settings
from mmrl.rewards.parsing.images import image_of, jpeg
from mmrl.types import Sample

QUALITY = 95


@dataclass(kw_only=True, eq=False)
class JPEGReward(Settings):
    """Kilobytes of an image as JPEG."""

    where: ClassVar[str] = "jpeg"
    needs: ClassVar[tuple[str, ...]] = ("images",)

    mode: Literal["compressibility", "incompressibility"] = "compressibility"
    """`compressibility` is minus the size (smooth images win), `incompressibility` the size (noise
    wins)."""

    def __call__(self, samples: list[Sample]) -> list[float | None]:
        """Kilobytes, of 1000 bytes."""
        images = [image_of(sample, "jpeg") for sample in samples]
        sign = -1 if self.mode == "compressibility" else 1
        return [sign * len(jpeg(image, QUALITY)) / 1000 for image in images]
