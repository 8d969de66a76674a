"""A new open_clip model with a tokenizer of its own, saved in open_clip's format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import nn
from transformers import PreTrainedTokenizerFast

from mmrl.config import check

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}


@dataclass(kw_only=True)
class ClipNetworkConfig:
    """Sizes of a new CLIP with transformer towers."""

    image_size: int = 224
    """Side of the square input of the image tower in pixels."""
    patch_size: int = 16
    """Side of a patch in pixels."""
    vision_width: int = 384
    """Width of the image tower."""
    vision_layers: int = 12
    """Layers of the image tower."""
    text_width: int = 256
    """Width of the text tower."""
    text_layers: int = 6
    """Layers of the text tower."""
    head_width: int = 64
    """Width of an attention head in both towers."""
    embed_dim: int = 256
    """Length of the features both towers end in."""
    context_length: int = 77
    """Tokens of a caption, with begin and end."""
    vocab_size: int = 4096
    """Tokens of the byte-pair tokenizer trained on the captions; 256 bytes and 3 marks at least."""

    def __post_init__(self) -> None:
        key = "objective.network"
        check(
            self.image_size % self.patch_size == 0,
            f"{key}.patch_size",
            self.patch_size,
            f"a divisor of image_size, {self.image_size}",
        )
        for name in ("vision_width", "text_width"):
            width = getattr(self, name)
            multiple = f"a multiple of head_width, {self.head_width}"
            check(width % self.head_width == 0, f"{key}.{name}", width, multiple)
        check(self.vocab_size > 258, f"{key}.vocab_size", self.vocab_size, "at least 259")

    def open_clip_config(self) -> dict[str, Any]:
        """The content of `open_clip_config.json`; pixels are mapped to [-1, 1]."""
        vision = {
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "width": self.vision_width,
            "layers": self.vision_layers,
            "head_width": self.head_width,
        }
        text = {
            "context_length": self.context_length,
            "vocab_size": self.vocab_size,
            "width": self.text_width,
            "layers": self.text_layers,
            "heads": self.text_width // self.head_width,
            # The name only tells open_clip to take the tokenizer that lies beside the weights.
            "hf_tokenizer_name": "tokenizer",
            "pool_type": "eos",
            "pad_id": 0,
            "eos_id": 2,
        }
        halves = [0.5, 0.5, 0.5]
        return {
            "model_cfg": {"embed_dim": self.embed_dim, "vision_cfg": vision, "text_cfg": text},
            "preprocess_cfg": {"mean": halves, "std": halves},
        }


def new_clip(config: ClipNetworkConfig, seed: int) -> nn.Module:
    """An open_clip model with new weights that depend on the seed only."""
    import open_clip

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return open_clip.CLIP(**config.open_clip_config()["model_cfg"])


def train_tokenizer(captions: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A lower-case byte-pair tokenizer that encodes any text as `<s> … </s>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(captions, trainer)
    ends = [(SPECIAL["bos_token"], 1), (SPECIAL["eos_token"], 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{ends[0][0]} $A {ends[1][0]}", special_tokens=ends
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


def save_clip(
    network: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    config: ClipNetworkConfig,
    directory: Path,
    dtype: torch.dtype,
) -> None:
    """Write architecture, weights and tokenizer as open_clip's `local-dir:` loader reads them."""
    text = json.dumps(config.open_clip_config(), indent=2) + "\n"
    (directory / "open_clip_config.json").write_text(text, encoding="utf-8")
    weights = {name: w.to(dtype).contiguous().cpu() for name, w in network.state_dict().items()}
    save_file(weights, directory / "open_clip_model.safetensors")
    tokenizer.save_pretrained(directory)
