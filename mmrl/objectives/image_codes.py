"""Images of training data as codes: encoded for their first micro-batch, a few at a time, and kept
in memory, or in a folder that processes and runs share.

A folder holds a file `.npy` of int32 per image, named by the hash of its file. Files are written
aside and renamed, and never change, so a reader sees a whole file or none.
"""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mmrl.data.lazy_images import LazyImage
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout_config import ImageFit
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.objectives.data_config import ImageCodesConfig

logger = logging.getLogger(__name__)
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
        self.memory: dict[bytes, Tensor] = {}
        self.folder: Path | None = None
        if config.codes_cache is not None:
            name = f"{identify(vq)[:16]}-{size}-{fit}"
            self.folder = Path(config.codes_cache).expanduser() / name

    def encode(self, images: Sequence[LazyImage]) -> Tensor:
        """Codes [len(images), N] int64 of images, on the CPU.

        Raises:
            ConfigError: an image that cannot be read, see `LazyImage.open`; it names the row.
        """
        keys = [image.digest for image in images]
        known = {key: self._read(key) for key in dict.fromkeys(keys)}
        missing = {k: i for k, i in zip(keys, images, strict=True) if known[k] is None}
        found = {k: codes for k, codes in known.items() if codes is not None}
        found |= self._encode_anew(missing)
        return torch.stack([found[key] for key in keys]).long()

    def _encode_anew(self, missing: dict[bytes, LazyImage]) -> dict[bytes, Tensor]:
        device, size = next(self.vq.parameters()).device, self.config.encode_batch_size
        keys, codes = list(missing), {}
        for first in range(0, len(keys), size):
            part = keys[first : first + size]
            squares = [image_to_pixels(missing[k].open(), self.size, self.fit) for k in part]
            found = self.vq.get_code(torch.stack(squares).to(device)).to("cpu", torch.int32)
            codes |= dict(zip(part, found, strict=True))
            for key in part:
                self._keep(key, codes[key])
        return codes

    def _read(self, key: bytes) -> Tensor | None:
        if self.folder is None:
            return self.memory.get(key)
        path = self._path(self.folder, key)
        try:
            return torch.from_numpy(np.load(path, allow_pickle=False))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError) as error:
            logger.warning("%s cannot be read (%s); its image is encoded anew", path, error)
            return None

    def _keep(self, key: bytes, codes: Tensor) -> None:
        if self.folder is None:
            self.memory[key] = codes
            return
        path = self._path(self.folder, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        with aside.open("wb") as file:
            np.save(file, codes.numpy())
        aside.replace(path)

    @staticmethod
    def _path(folder: Path, key: bytes) -> Path:
        return folder / key.hex()[:2] / f"{key.hex()}.npy"


def identify(vq: ImageTokenizer) -> str:
    """A hash of the sizes and weights of an image tokenizer."""
    found = hashlib.sha256(json.dumps([PIXELS, vq.to_config()], sort_keys=True).encode())
    for name, tensor in sorted(vq.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()
