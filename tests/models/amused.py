"""A small directory of an `AmusedPipeline`, as diffusers saves it."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPTokenizer

CODES, MASK, TEXT_LENGTH = 64, 71, 10
WIDTH = 16


def write_tokenizer(folder: Path) -> Path:
    """The files of a CLIP tokenizer of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(ByteLevel.alphabet())
    words = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": TEXT_LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_amused(folder: Path, halved: bool = False, side: int = 4, seed: int = 0) -> Path:
    """Write a pipeline of random weights, for images of `side` codes along a side; `halved`: the
    network works on half the grid, as that of 512 pixels does."""
    from diffusers import AmusedPipeline, AmusedScheduler, UVit2DModel, VQModel

    tokenizer = CLIPTokenizer.from_pretrained(write_tokenizer(folder / "tokenizer"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes: dict[str, Any] = (
            {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 3}
            | {"num_attention_heads": 2, "projection_dim": WIDTH}
            | {"max_position_embeddings": TEXT_LENGTH, "vocab_size": len(tokenizer)}
            | {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        )
        text = CLIPTextModelWithProjection(CLIPTextConfig(**sizes))
        transformer = UVit2DModel(
            hidden_size=32,
            cond_embed_dim=WIDTH,
            micro_cond_encode_dim=8,
            micro_cond_embed_dim=40,
            encoder_hidden_size=WIDTH,
            vocab_size=MASK + 1,
            codebook_size=CODES,
            in_channels=24,
            block_out_channels=32,
            num_res_blocks=1,
            downsample=halved,
            upsample=halved,
            block_num_heads=2,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            sample_size=side,
        )
        for name, weight in transformer.named_parameters():
            if name.endswith(("gamma", "beta")):
                torch.nn.init.normal_(weight, std=0.3)  # zero as they are drawn
        transformer.mlm_layer.conv2.weight.data *= 0.3  # or guidance makes all codes equal
        vq = VQModel(
            block_out_channels=[8, 8],
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            latent_channels=8,
            layers_per_block=1,
            norm_num_groups=4,
            num_vq_embeddings=CODES,
            lookup_from_codebook=True,
            mid_block_add_attention=False,
        )
    pipeline = AmusedPipeline(vq, tokenizer, text, transformer, AmusedScheduler(MASK))  # type: ignore[arg-type]
    pipeline.save_pretrained(folder)
    return folder
