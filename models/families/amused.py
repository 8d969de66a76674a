"""aMUSEd (amused/amused-256, amused/amused-512; arXiv 2401.01808): images by a UViT of diffusers.

A checkpoint is the directory of an `AmusedPipeline`; every part of it keeps its own folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mmrl.models.families.family import LayoutInputs, check_variant, read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.pixels import written_grid
from mmrl.models.layouts.text_to_image import TextToImage
from mmrl.models.network.uvit import UVit

KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {"text_to_image": TextToImage}
TOKEN_IDS: dict[str, int] = {}
KEYS = {"head.": "mlm_layer.conv2.", "transformer.": ""}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether the directory is that of an `AmusedPipeline`."""
    return config.get("_class_name") == "AmusedPipeline"


def network(config: Mapping[str, Any]) -> UVit:
    """The transformer; its text encoder has no weights yet."""
    for key in ("vocab_size", "codebook_size", "sample_size"):
        read_number(config, key)
    check_variant(config.get("scheduler", {}), {"mask_token_id": config["vocab_size"] - 1})
    return UVit(config, count_patch(config))


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Images alone; see `Family.layouts`."""
    network, tokenizer, options, vq, _ = inputs
    if vq is None:
        return {}
    config = network.public_config
    if (vq.codebook_size, vq.downsample) != (config["codebook_size"], network.patch):
        raise ValueError(
            f"the image tokenizer has {vq.codebook_size} codes of {vq.downsample} pixels, the"
            f" checkpoint {config['codebook_size']} of {network.patch}: they do not belong together"
        )
    ids = {"mask": config["vocab_size"] - 1}
    rows = ClipRows(tokenizer, ids, network.text_length, network.text_offset)
    height, width = written_grid(options, vq.downsample, count_codes(config))
    if height != width or (config.get("downsample") and height % 2):
        even = " with an even number of codes along a side" if config.get("downsample") else ""
        raise ValueError(
            f"an image has {width} x {height} codes; the checkpoint writes squares{even}"
        )
    return {"text_to_image": TextToImage(rows, vq, (height, width), "ignore")}


@dataclass(frozen=True)
class ClipRows:
    """The rows of one checkpoint: `text_length` ids of CLIP, whose token 0 is `text_offset`, behind
    the ids of codes, then codes; `ids` has `mask`."""

    tokenizer: PreTrainedTokenizerBase
    ids: Mapping[str, int]
    text_length: int
    text_offset: int
    code_offset: int = 0

    def text_to_image(
        self, texts: Sequence[str], codes: Tensor, drop: Sequence[bool] | None = None
    ) -> tuple[Tensor, Tensor]:
        """See `ImageRows.text_to_image`; the unconditional prompt is the empty text."""
        kept = zip(texts, drop or [False] * len(texts), strict=True)
        shown = ["" if dropped else text for text, dropped in kept]
        options = {"padding": "max_length", "truncation": True, "max_length": self.text_length}
        given = self.tokenizer(shown, **options)
        rows = torch.cat((torch.tensor(given["input_ids"]) + self.text_offset, codes), 1)
        return rows, torch.ones_like(rows)

    def written(self, grid: tuple[int, int]) -> Tensor:
        return torch.ones(grid[0] * grid[1], dtype=torch.bool)


def count_codes(config: Mapping[str, Any]) -> int:
    """Codes of an image where no size is asked for."""
    return config["sample_size"] ** 2


def count_patch(config: Mapping[str, Any]) -> int:
    """Pixels per code along one side."""
    return 2 ** (len(config["vqvae"]["block_out_channels"]) - 1)
