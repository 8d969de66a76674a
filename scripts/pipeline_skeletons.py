"""Pipelines of diffusers with random weights: those of aMUSEd, Stable Diffusion 3 and Sana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIDES = ("encoder", "decoder")
CLIP_WORDS, END = 49406, "<|endoftext|>"
CLIP_TEXT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "projection_dim": 768,
}
"""Sizes of aMUSEd's text encoder."""


def write_amused(
    folder: Path, text: dict[str, Any], transformer: dict[str, Any], vqvae: dict[str, Any]
) -> None:
    """The parts of amused/amused-256 as diffusers saves them, in float32 as published, of these
    sizes."""
    import diffusers as parts

    tokenizer = build_clip_tokenizer(folder / "tokenizer")
    encoder = build_clip(tokenizer, **text)
    network = parts.UVit2DModel.from_config(transformer)
    vq = parts.VQModel.from_config(vqvae)
    scheduler = parts.AmusedScheduler(mask_token_id=network.config.vocab_size - 1)
    parts.AmusedPipeline(vq, tokenizer, encoder, network, scheduler).save_pretrained(folder)


def write_sd3(folder: Path, width: int, layers: int) -> None:
    """The parts of stable-diffusion-3.5-medium: its transformer of this width, half of its blocks
    with two attentions, its scheduler, and small encoders of texts and images; without T5."""
    import diffusers as parts

    from mmrl.pretrained.known import SIZES

    raw = SIZES["SD3.5-medium"]
    tokenizer = build_clip_tokenizer(folder / "tokenizer")
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
    small["num_hidden_layers"] = 2
    pooled = raw["text_encoder"]["projection_dim"], raw["text_encoder_2"]["projection_dim"]
    encoders = [build_clip(tokenizer, **small, projection_dim=own) for own in pooled]
    own = {"num_layers": layers, "num_attention_heads": width // raw["attention_head_dim"]}
    own |= {"caption_projection_dim": width, "dual_attention_layers": [*range(-(-layers // 2))]}
    sizes = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    network = parts.SD3Transformer2DModel.from_config({**sizes, **own})
    sizes = {**raw["vae"], "block_out_channels": [32] * 4, "layers_per_block": 1}
    vae = parts.AutoencoderKL.from_config(sizes)
    vae.register_to_config(scaling_factor=1.5305, shift_factor=0.0609)
    scheduler = parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"])
    texts = {"text_encoder": encoders[0], "text_encoder_2": encoders[1], "text_encoder_3": None}
    words = {"tokenizer": tokenizer, "tokenizer_2": tokenizer, "tokenizer_3": None}
    parts.StableDiffusion3Pipeline(
        transformer=network, scheduler=scheduler, vae=vae, **texts, **words
    ).save_pretrained(folder)


def write_sana(folder: Path, width: int, layers: int) -> None:
    """The parts of Sana_600M_512px: its transformer of this width, its scheduler, and a small Gemma
    and autoencoder; texts are encoded to bytes."""
    import diffusers

    from mmrl.pretrained.known import SIZES

    parts: Any = diffusers
    raw = SIZES["Sana-0.6B-512px"]
    tokenizer, encoder = build_gemma(raw["text_encoder"])
    heads = {"num_attention_heads": width // 32, "num_cross_attention_heads": width // 64}
    heads |= {"cross_attention_head_dim": 64, "cross_attention_dim": width}
    sizes = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    network = parts.SanaTransformer2DModel.from_config(
        {**sizes, **heads, "num_layers": layers, "caption_channels": 64}
    )
    sizes = {f"{side}_block_out_channels": [32] * 6 for side in SIDES}
    sizes |= {f"{side}_layers_per_block": [1] * 6 for side in SIDES}
    vae = parts.AutoencoderDC.from_config({**raw["vae"], **sizes, "attention_head_dim": 16})
    scheduler = parts.DPMSolverMultistepScheduler.from_config(raw["scheduler"])
    parts.SanaPipeline(tokenizer, encoder, vae, network, scheduler).save_pretrained(folder)


def build_gemma(sizes: dict[str, Any]) -> tuple[Any, Any]:
    """A tokenizer to bytes, and a small text encoder of Gemma with the other keys of `sizes`."""
    from transformers import Gemma2Config, Gemma2Model, GemmaTokenizer

    marks = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{n:02X}>" for n in range(256)))
    vocabulary = {word: n for n, word in enumerate(marks)}
    tokenizer = GemmaTokenizer(vocabulary, add_bos_token=True)
    text = {**sizes, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    return tokenizer, Gemma2Model(Gemma2Config(**{**text, "vocab_size": len(vocabulary)}))


PIPELINES = {"sana": write_sana, "sd3": write_sd3}
"""What writes the pipeline of a family, by width and blocks of its transformer."""


def build_clip_tokenizer(folder: Path) -> Any:
    """A tokenizer with the ids of CLIP's special tokens; texts are encoded to bytes."""
    from transformers import CLIPTokenizer

    ends = {f"{letter}</w>": 256 + n for letter, n in list_words(256).items()}
    words = list_words(256) | ends | {f"w{n}</w>": n for n in range(512, CLIP_WORDS)}
    words |= {"<|startoftext|>": CLIP_WORDS, END: CLIP_WORDS + 1}
    own = {"model_max_length": 77, "tokenizer_class": "CLIPTokenizer"}
    write_vocabulary(folder, words, own)
    return CLIPTokenizer.from_pretrained(folder)


def build_clip(tokenizer: Any, **sizes: Any) -> Any:
    """A text encoder of CLIP for this tokenizer."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = CLIPTextConfig(**sizes, vocab_size=len(tokenizer), **ids)
    return CLIPTextModelWithProjection(config)


def list_words(number: int) -> dict[str, int]:
    """A vocabulary of bytes, and of words that no text is encoded to."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġw{n}" for n in range(len(alphabet), number))]
    return {word: n for n, word in enumerate(words)}


def write_vocabulary(folder: Path, words: dict[str, int], config: dict[str, Any]) -> None:
    """Write the files of a tokenizer without merges."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(words))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
