"""A new open_clip model with its own tokenizer, saved in open_clip's format."""

import json
from collections.abc import Iterable
from pathlib import Path

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

from mmrl.config import import_extra
from scripts.miniature.contrastive_config import ClipNetworkConfig

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}


def new_clip(config: ClipNetworkConfig, seed: int) -> nn.Module:
    """Build an open_clip model with new weights that depend on the seed only."""
    open_clip = import_extra("open_clip", "clip")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return open_clip.CLIP(**config.open_clip_config()["model_cfg"])


def train_tokenizer(captions: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a lower-case byte-pair tokenizer that encodes any text as `<s> … </s>`."""
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
