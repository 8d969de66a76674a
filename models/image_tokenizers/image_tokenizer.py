"""What every image tokenizer does; loading and saving one in the public directory formats.

A directory holds `*.safetensors` or `pytorch_model.bin` and, unless it is the public network,
config.json, whose `_class_name` decides the kind; see `IMAGE_TOKENIZERS`. A pipeline directory of
diffusers holds that directory as its subfolder `vqvae`.
"""

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.config.settings_file import read_settings_file
from mmrl.models.image_tokenizers import IMAGE_TOKENIZERS, PUBLIC_KIND, SUBFOLDER
from mmrl.models.source import find_directory
from mmrl.models.weights import (
    BUILD_ERRORS,
    check_weights,
    read_headers,
    read_weights,
    resolve_dtype,
    write_weights,
)


class ImageTokenizer(nn.Module):
    """Pixels of `channels` to codes 0 .. codebook_size - 1 and back, `downsample` pixels per code
    along a side; `source` is the absolute path or hub id that it was loaded from."""

    codebook_size: int
    downsample: int
    channels: int
    source: str | None = None

    @classmethod
    def build(cls, config: Mapping[str, Any]) -> "ImageTokenizer":
        """A network with new weights. Raises TypeError, ValueError: a value that cannot be."""
        raise NotImplementedError

    def to_config(self) -> dict[str, Any]:
        """The keys of config.json that `build` takes, with their values."""
        raise NotImplementedError

    def get_code(self, pixels: Tensor) -> Tensor:
        """Map pixels [B, 3, H, W] in [-1, 1] to row-major codes [B, H * W / downsample ** 2] int64,
        in float32, whatever the context."""
        raise NotImplementedError

    def decode_code(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        """Map codes [B, N] of a (height, width) grid, by default a square, to pixels float32
        [B, 3, height * downsample, width * downsample] of about [-1, 1]."""
        raise NotImplementedError

    def decode_bytes(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        """Map codes to uint8 pixels [B, 3, H, W], as the public code writes images; arguments and
        errors of `decode_code`."""
        return to_bytes(self.decode_code(codes, shape))

    def check_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise a ValueError for weights of another quantiser."""

    def check_pixels(self, pixels: Tensor) -> None:
        """Raise a ValueError for pixels that are not [B, channels, H, W] in floating point with
        sides that are positive multiples of `downsample`."""
        factor, sides = self.downsample, pixels.shape[2:]
        fits = pixels.ndim == 4 and pixels.shape[1] == self.channels and min(sides) > 0
        if not fits or not pixels.is_floating_point() or any(side % factor for side in sides):
            raise ValueError(
                f"pixels are {pixels.dtype} {tuple(pixels.shape)}; give floating point"
                f" [B, {self.channels}, H, W] with sides that are multiples of {factor}."
            )

    def check_codes(self, codes: Tensor, shape: tuple[int, int] | None) -> tuple[int, int]:
        """Height and width of the grid of codes [B, N]. Raises ValueError: codes outside the
        codebook, or a grid that does not hold N codes; without `shape`, N is no square."""
        low, high = int(codes.min()), int(codes.max())
        if low < 0 or high >= self.codebook_size:
            raise ValueError(
                f"codes range from {low} to {high}; allowed are 0 to {self.codebook_size - 1}."
                " Subtract the code offset of the vocabulary and write all masks before decoding."
            )
        height, width = shape or (math.isqrt(codes.shape[1]),) * 2
        if height * width != codes.shape[1] or height < 1:
            raise ValueError(
                f"shape {(height, width)} holds {height * width} codes but got {codes.shape[1]};"
                " pass shape=(height, width) in codes."
            )
        return height, width


def to_bytes(pixels: Tensor) -> Tensor:
    """Pixels of about [-1, 1] as uint8; out-of-range values are clamped, fractions truncated."""
    return (((pixels + 1) / 2).clamp(0, 1) * 255).to(torch.uint8)


def load_vq(path_or_hub_id: str | Path, device: str = "cpu") -> ImageTokenizer:
    """Load an image tokenizer from a directory, from the hub, or from the folder `vqvae` of a
    checkpoint, in evaluation mode and float32. Raises FileNotFoundError: nothing found under this
    name. Raises ValueError: an unknown kind or key, a truncated file, or tensors that do not
    fit."""
    directory = vq_directory(find_directory(path_or_hub_id, pickled=True))
    outline_vq(directory)
    vq, tensors = _build(directory), read_weights(directory, pickled=True)
    vq.check_tensors(tensors)
    vq.load_state_dict(tensors)
    path = Path(path_or_hub_id).expanduser()
    vq.source = str(path.resolve() if path.is_dir() else path_or_hub_id)
    return vq.to(device).eval().requires_grad_(False)


def outline_vq(directory: Path) -> ImageTokenizer:
    """The tokenizer of a directory without its weights, on the meta device."""
    directory = vq_directory(directory)
    headers = read_headers(directory, pickled=True)
    with torch.device("meta"):
        vq = _build(directory)
    check_weights(headers, vq.state_dict(), str(directory))
    return vq


def vq_directory(directory: Path) -> Path:
    """The directory of the image tokenizer that `directory` is or holds."""
    inside = directory / SUBFOLDER
    return inside if (inside / "config.json").is_file() else directory


def build_vq(config: Mapping[str, Any]) -> ImageTokenizer:
    """The tokenizer of a config.json with new weights; an empty one is that of showlab/magvitv2.
    Raises ValueError: an unknown kind or key, or a value that cannot be."""
    kind = config.get("_class_name", PUBLIC_KIND)
    if kind not in IMAGE_TOKENIZERS:
        known = ", ".join(IMAGE_TOKENIZERS)
        raise ValueError(f"_class_name is {kind!r}; known image tokenizers: {known}")
    module, _, name = IMAGE_TOKENIZERS[kind].partition(":")
    tokenizer: type[ImageTokenizer] = getattr(import_module(module), name)
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    try:
        return tokenizer.build(given)
    except BUILD_ERRORS as error:
        raise ValueError(f"no network can be built from its values ({error})") from error


def save_vq(vq: ImageTokenizer, directory: str | Path, dtype: str | None = None) -> None:
    """Write config.json and model.safetensors, which `load_vq` reads, into a directory; the weights
    in `dtype`, or in the one they have."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    precision, state = None if dtype is None else resolve_dtype(dtype), vq.state_dict()
    tensors = {k: t.to(precision) if t.is_floating_point() else t for k, t in state.items()}
    path = f"{type(vq).__module__}:{type(vq).__name__}"
    [kind] = [name for name, known in IMAGE_TOKENIZERS.items() if known == path]
    content = {"_class_name": kind, **vq.to_config()}
    (directory / "config.json").write_text(json.dumps(content, indent=2) + "\n")
    write_weights(tensors, directory)


def _build(directory: Path) -> ImageTokenizer:
    path = directory / "config.json"
    config = read_settings_file(path) if path.is_file() else {}
    try:
        return build_vq(config)
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error
