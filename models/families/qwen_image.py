"""Qwen-Image (Qwen/Qwen-Image, Qwen/Qwen-Image-Edit; arXiv 2508.02324).

A checkpoint is the directory of a `QwenImagePipeline`, or of a `QwenImageEditPipeline`, which edits
images; its text encoder is a Qwen2.5-VL, that reads the source image, too. Deviation: this one has
the size of the image that is written, where the pipeline makes it one of a million pixels.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from mmrl.models.families.family import read_number
from mmrl.models.families.latent_family import LatentFamily
from mmrl.models.layouts.from_image import EditedLatents
from mmrl.models.network.qwen_image import QwenImageNetwork

NO_TEXT = " "
"""In the place of the empty text: the pipeline's own example of a negative prompt."""


class QwenImage(LatentFamily):
    """A family; see `LatentFamily`."""

    pipeline, made = "QwenImagePipeline", QwenImageNetwork

    def encode_text(
        self,
        pipeline: Any,
        text: str | list[str],
        device: torch.device,
        max_length: int,
        image: Image.Image | None = None,
    ) -> dict[str, Tensor]:
        """States and mask of the tokens of texts, after those of an image that comes with them, see
        `QwenImageNetwork.forward`. Texts are padded to `max_length`, so that a row is computed
        alike in each batch."""
        texts = [each or NO_TEXT for each in ([text] if isinstance(text, str) else text)]
        given = {"device": device, **({} if image is None else {"image": image})}
        states, mask = pipeline.encode_prompt(texts, max_sequence_length=max_length, **given)
        mask = states.new_ones(states.shape[:2]) if mask is None else mask
        if image is not None:
            reader = pipeline.processor.image_processor
            max_length += int(reader(image)["image_grid_thw"].prod()) // reader.merge_size**2
        room = max_length - states.shape[1]  # below 0 it cuts
        return {"states": F.pad(states, (0, 0, 0, room)), "mask": F.pad(mask, (0, room)).bool()}

    def count_channels(self, config: Mapping[str, Any]) -> int:
        return read_number(config, "in_channels") // config["patch_size"] ** 2

    def count_pixels(self, config: Mapping[str, Any]) -> int:
        return 2 ** len(config["vae"]["temperal_downsample"])


class QwenImageEdit(QwenImage):
    """A family; see `LatentFamily`."""

    LAYOUTS = {"image_edit": EditedLatents}
    pipeline = "QwenImageEditPipeline"

    def shows_image(self, config: Mapping[str, Any]) -> bool:
        return True
