"""Pipelines of diffusers with random weights: aMUSEd's, and some that denoise latents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TURNS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""A chat template with the turns of qwen2's."""
SMALL_QWEN = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
"""Sizes of a text encoder that is Qwen2.5-VL or Qwen3."""
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


def write_qwen_image(folder: Path, width: int, layers: int) -> None:
    """The parts of Qwen-Image: its transformer of this width, its scheduler, and small encoders of
    texts and images."""
    import diffusers as parts
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    from mmrl.pretrained.known import SIZES

    raw = SIZES["Qwen-Image"]
    tokenizer = build_qwen_tokenizer()
    rope = {"type": "mrope", "mrope_section": [4, 6, 6]}
    text = {**SMALL_QWEN, "vocab_size": len(tokenizer), "rope_scaling": rope}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": text["hidden_size"], "fullatt_block_indexes": [0]}
    encoder = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)
    sizes = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    own = {"num_layers": layers, "num_attention_heads": width // raw["attention_head_dim"]}
    own |= {"joint_attention_dim": text["hidden_size"]}
    vae = {**raw["vae"], "base_dim": 8, "num_res_blocks": 1}
    parts.QwenImagePipeline(
        transformer=parts.QwenImageTransformer2DModel.from_config({**sizes, **own}),
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=parts.AutoencoderKLQwenImage.from_config(vae),
        text_encoder=Qwen2_5_VLForConditionalGeneration(encoder),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


def write_z_image(folder: Path, width: int, layers: int) -> None:
    """The parts of Z-Image: its transformer of this width, its scheduler, and small encoders of
    texts and images."""
    import diffusers as parts
    from transformers import Qwen3Config, Qwen3Model

    from mmrl.pretrained.known import SIZES

    raw = SIZES["Z-Image"]
    tokenizer = build_qwen_tokenizer()
    encoder = Qwen3Config(**SMALL_QWEN, head_dim=32, vocab_size=len(tokenizer))
    sizes = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    heads = width // sum(raw["axes_dims"])
    own = {"dim": width, "n_layers": layers, "n_refiner_layers": 1, "n_heads": heads}
    own |= {"n_kv_heads": heads, "cap_feat_dim": encoder.hidden_size}
    network: Any = parts.ZImageTransformer2DModel.from_config({**sizes, **own})
    for token in (network.x_pad_token, network.cap_pad_token):
        token.data.normal_(std=0.02)  # diffusers leaves them zero
    vae = {**raw["vae"], "block_out_channels": [32] * 4, "layers_per_block": 1}
    parts.ZImagePipeline(
        transformer=network,
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=parts.AutoencoderKL.from_config(vae),
        text_encoder=Qwen3Model(encoder),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


def build_qwen_tokenizer() -> Any:
    """A tokenizer with the turns of Qwen's; texts are encoded to bytes, but for the words of what
    Qwen-Image's pipeline writes before each text and counts as 34 tokens."""
    from diffusers import QwenImagePipeline
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Tokenizer

    absent: Any = [None] * 5
    template = QwenImagePipeline(*absent).prompt_template_encode
    plain: Any = Qwen2Tokenizer().backend_tokenizer
    cut = plain.pre_tokenizer.pre_tokenize_str(template)
    pairs = [(word[:n], word[n]) for word, _ in cut for n in range(1, len(word))]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, pairs)]
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys(words))}
    special = {"extra_special_tokens": ["<|im_start|>", "<|im_end|>"], "chat_template": TURNS}
    return Qwen2Tokenizer(vocabulary, list(dict.fromkeys(pairs)), **special)


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
