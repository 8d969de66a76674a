"""Images of training data as codes: encoded for their first micro-batch, a few at a time."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmrl.data.lazy_images import LazyImage
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.objectives.code_cache import CodeCache
from mmrl.objectives.image_codes_config import ImageCodesConfig

PIXELS = "1"
"""Version of `image_to_pixels`: codes of another are not read."""


class ImageCodes:
    """Codes of images, each of which is opened and encoded once.

    Args:
        vq: the image tokenizer, on the device where it encodes.
        size: side in pixels of the square that images become.
        fit: how they become it.
        config: how many are encoded at once, and where codes are kept.
    """

    def __init__(
        self, vq: ImageTokenizer, size: int, fit: ImageFit, config: ImageCodesConfig
    ) -> None:
        self.vq, self.size, self.config = vq, size, config
        self.fit: ImageFit = fit
        folder = None
        if config.codes_cache is not None:
            name = f"{identify(vq)[:16]}-{size}-{fit}"
            folder = Path(config.codes_cache).expanduser() / name
        self.cache = CodeCache(folder)

    def encode(self, images: Sequence[LazyImage]) -> Tensor:
        """Codes [len(images), N] int64 of images, on the CPU.

        Raises:
            ConfigError: an image that cannot be read, see `LazyImage.open`; it names the row.
        """
        keys = [image.digest for image in images]
        known = self.cache.get(keys)
        missing = {k: i for k, i in zip(keys, images, strict=True) if k not in known}
        known |= self._encode_anew(missing)
        return torch.stack([known[key] for key in keys])

    def _encode_anew(self, missing: dict[bytes, LazyImage]) -> dict[bytes, Tensor]:
        device, size = next(self.vq.parameters()).device, self.config.encode_batch_size
        keys, codes = list(missing), {}
        for first in range(0, len(keys), size):
            part = keys[first : first + size]
            squares = [image_to_pixels(missing[k].open(), self.size, self.fit) for k in part]
            found = self.vq.get_code(torch.stack(squares).to(device)).cpu()
            codes |= dict(zip(part, found, strict=True))
            self.cache.put({key: codes[key] for key in part})
        return codes


def identify(vq: ImageTokenizer) -> str:
    """A hash of the sizes and weights of an image tokenizer."""
    found = hashlib.sha256(json.dumps([PIXELS, vq.to_config()], sort_keys=True).encode())
    for name, tensor in sorted(vq.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()
