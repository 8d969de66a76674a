"""What every image tokenizer does; loading and saving one in the public directory formats.

A directory holds `*.safetensors` or `pytorch_model.bin` and, unless it is the public network,
config.json, whose `_class_name` decides the kind; see `IMAGE_TOKENIZERS`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from models.image_tokenizers import IMAGE_TOKENIZERS, PUBLIC_KIND
from models.source import find_directory
from models.weights import check_weights, read_headers, read_weights, resolve_dtype, write_weights


class ImageTokenizer(nn.Module):
    """Pixels to codes and back; built from a `Config`, whose fields are the keys of config.json."""

    Config: type[Any]
    config: Any

    @property
    def codebook_size(self) -> int:
        """Number of codes; codes are 0 .. codebook_size - 1."""
        raise NotImplementedError

    @property
    def downsample(self) -> int:
        """Pixels per code along one side."""
        raise NotImplementedError

    def get_code(self, pixels: Tensor) -> Tensor:
        """Map pixels [B, 3, H, W] in [-1, 1] to row-major codes [B, N] int64."""
        raise NotImplementedError

    def decode_code(self, codes: Tensor, shape: tuple[int, int] | None = None) -> Tensor:
        """Map codes [B, N] of a (height, width) grid, by default a square, to pixels float32
        [B, 3, height * downsample, width * downsample] of about [-1, 1]."""
        raise NotImplementedError

    def load_tensors(self, tensors: Mapping[str, Tensor], dtype: torch.dtype, source: str) -> None:
        """Take the weights of the checkpoint `source`: the decoder in `dtype`, the encoder in
        float32."""
        raise NotImplementedError


def load_vq(
    path_or_hub_id: str | Path, dtype: str = "float32", device: str = "cpu"
) -> ImageTokenizer:
    """Load an image tokenizer from a directory or from the Hugging Face hub, in evaluation mode.

    Args:
        path_or_hub_id: a directory, or a hub id when no such directory exists.
        dtype: of the decoder; the encoder stays float32.
        device: a torch device.

    Raises:
        FileNotFoundError: nothing found under this name.
        ValueError: an unknown dtype, kind or configuration key, a truncated file, or missing,
            unexpected or wrongly shaped tensors.
    """
    precision = resolve_dtype(dtype)
    directory = find_directory(path_or_hub_id, pickled=True)
    outline_vq(directory)
    vq = _build(directory)
    vq.load_tensors(read_weights(directory, pickled=True), precision, str(directory))
    return vq.to(device).eval().requires_grad_(False)


def outline_vq(directory: Path) -> ImageTokenizer:
    """The tokenizer of a directory without its weights, on the meta device.

    Raises:
        FileNotFoundError, ValueError: see `load_vq`.
    """
    with torch.device("meta"):
        vq = _build(directory)
    check_weights(read_headers(directory, pickled=True), vq.state_dict(), str(directory))
    return vq


def build_vq(config: Mapping[str, Any]) -> ImageTokenizer:
    """The tokenizer of a config.json with new weights; an empty one is that of showlab/magvitv2.

    Raises:
        ValueError: an unknown kind or key, or a value that cannot be.
    """
    kind = config.get("_class_name", PUBLIC_KIND)
    if kind not in IMAGE_TOKENIZERS:
        known = ", ".join(IMAGE_TOKENIZERS)
        raise ValueError(f"_class_name is {kind!r}; known image tokenizers: {known}")
    module, _, name = IMAGE_TOKENIZERS[kind].partition(":")
    tokenizer: type[ImageTokenizer] = getattr(import_module(module), name)
    known = {item.name for item in fields(tokenizer.Config)}
    given = {key: value for key, value in config.items() if not key.startswith("_")}
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"unknown keys {unknown}; allowed are {sorted(known)}.")
    try:
        return tokenizer(tokenizer.Config(**given))
    except TypeError as error:
        raise ValueError(f"a value of the wrong type: {error}.") from error


def save_vq(vq: ImageTokenizer, directory: str | Path, dtype: str | None = None) -> None:
    """Write config.json and model.safetensors, which `load_vq` reads.

    Args:
        vq: the tokenizer.
        directory: created when missing.
        dtype: stored precision of the weights; by default the one they have.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    precision = None if dtype is None else resolve_dtype(dtype)
    tensors = {
        key: value.to(precision) if value.is_floating_point() else value
        for key, value in vq.state_dict().items()
    }
    path = f"{type(vq).__module__}:{type(vq).__name__}"
    [kind] = [name for name, known in IMAGE_TOKENIZERS.items() if known == path]
    content = {"_class_name": kind, **asdict(vq.config)}
    (directory / "config.json").write_text(json.dumps(content, indent=2) + "\n")
    write_weights(tensors, directory)


def _build(directory: Path) -> ImageTokenizer:
    path = directory / "config.json"
    try:
        return build_vq(json.loads(path.read_text()) if path.is_file() else {})
    except ValueError as error:  # also of JSON
        raise ValueError(f"'{path}': {error}") from error
