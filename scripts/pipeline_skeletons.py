"""Pipelines of diffusers with random weights: aMUSEd's, and some that denoise latents."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

TURNS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""A chat template with the turns of qwen2's."""
SMALL_CLIP = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
SMALL_QWEN = {**SMALL_CLIP, "num_key_value_heads": 1}
"""Sizes of a text encoder that is Qwen2.5-VL or Qwen3."""
SMALL_T5: Any = {"d_model": 64, "d_ff": 128, "d_kv": 32, "num_heads": 2, "num_layers": 2}
SIDES = ("encoder", "decoder")
MARKS = ("vision_start", "vision_end", "image_pad")
CLIP_WORDS, END = 49406, "<|endoftext|>"
CLIP_TEXT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "projection_dim": 768,
}
"""Sizes of aMUSEd's text encoder."""


def read_sizes(name: str) -> Any:
    """What a published checkpoint says of its sizes."""
    from mmrl.pretrained.known import SIZES

    return SIZES[name]


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

    raw = read_sizes("SD3.5-medium")
    tokenizer = build_clip_tokenizer(folder / "tokenizer")
    pooled = raw["text_encoder"]["projection_dim"], raw["text_encoder_2"]["projection_dim"]
    encoders = [build_clip(tokenizer, **SMALL_CLIP, projection_dim=own) for own in pooled]
    own = {"num_layers": layers, "num_attention_heads": width // raw["attention_head_dim"]}
    own |= {"caption_projection_dim": width, "dual_attention_layers": [*range(-(-layers // 2))]}
    texts = {"text_encoder": encoders[0], "text_encoder_2": encoders[1], "text_encoder_3": None}
    words = {"tokenizer": tokenizer, "tokenizer_2": tokenizer, "tokenizer_3": None}
    parts.StableDiffusion3Pipeline(
        transformer=resized(raw, parts.SD3Transformer2DModel, **own),
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=small_vae(raw, parts.AutoencoderKL, scaling_factor=1.5305, shift_factor=0.0609),
        **texts,
        **words,
    ).save_pretrained(folder)


def write_flux(folder: Path, width: int, layers: int, kind: str = "FluxPipeline") -> None:
    """The parts of FLUX.1-dev, or in another pipeline of it: its transformer of this width, with as
    many single blocks as double ones, its scheduler, and small encoders of texts and images."""
    import diffusers as parts
    from transformers import CLIPTextModel, T5Config, T5EncoderModel

    raw = read_sizes("FLUX.1-dev")
    tokenizer, words = build_clip_tokenizer(folder / "tokenizer"), build_t5_tokenizer()
    t5 = T5Config(**SMALL_T5, vocab_size=len(words), feed_forward_proj="gated-gelu")
    network = {"num_layers": layers, "num_single_layers": layers, "joint_attention_dim": 64}
    network |= {"num_attention_heads": width // raw["attention_head_dim"]}
    getattr(parts, kind)(
        transformer=resized(raw, parts.FluxTransformer2DModel, pooled_projection_dim=64, **network),
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=small_vae(raw, parts.AutoencoderKL, scaling_factor=0.3611, shift_factor=0.1159),
        text_encoder=CLIPTextModel(clip_config(tokenizer, **SMALL_CLIP)),
        text_encoder_2=T5EncoderModel(t5),
        tokenizer=tokenizer,
        tokenizer_2=words,
    ).save_pretrained(folder)


def write_flux2_klein(folder: Path, width: int, layers: int) -> None:
    """The parts of FLUX.2-klein: its transformer of this width, with as many single blocks as
    double ones, its scheduler, and small encoders of texts, with the layers whose states are read,
    and images."""
    import diffusers as parts
    from transformers import Qwen3Config, Qwen3ForCausalLM

    raw, tokenizer = read_sizes("FLUX.2-klein-9B"), build_qwen_tokenizer()
    text: Any = {**SMALL_QWEN, "num_hidden_layers": 28, "vocab_size": len(tokenizer)}
    network = {"num_layers": layers, "num_single_layers": layers, "joint_attention_dim": 3 * 64}
    network |= {"num_attention_heads": width // raw["attention_head_dim"]}
    vae = small_vae(raw, parts.AutoencoderKLFlux2)
    vae.bn.running_mean.normal_()
    vae.bn.running_var.uniform_(0.5, 2)
    parts.Flux2KleinPipeline(
        transformer=resized(raw, parts.Flux2Transformer2DModel, **network),
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=vae,
        text_encoder=Qwen3ForCausalLM(Qwen3Config(**text, head_dim=32)),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


def write_qwen_image(
    folder: Path, width: int, layers: int, kind: str = "QwenImagePipeline"
) -> None:
    """The parts of Qwen-Image, or of the pipeline that edits: its transformer of this width, its
    scheduler, and small encoders of texts and images."""
    import diffusers as parts
    import transformers as readers

    raw = read_sizes("Qwen-Image")
    tokenizer = build_qwen_tokenizer(kind)
    reader: Any = {"image_processor": readers.Qwen2VLImageProcessor(), "tokenizer": tokenizer}
    reader["video_processor"] = readers.Qwen2VLVideoProcessor()
    edits = {"processor": readers.Qwen2VLProcessor(**reader)}
    rope = {"type": "mrope", "mrope_section": [4, 6, 6]}
    text = {**SMALL_QWEN, "vocab_size": len(tokenizer), "rope_scaling": rope}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2}
    vision |= {"out_hidden_size": text["hidden_size"], "fullatt_block_indexes": [0]}
    marks = {f"{n}_token_id": tokenizer.convert_tokens_to_ids(f"<|{n}|>") for n in MARKS}
    marks["image_token_id"] = marks.pop("image_pad_token_id")
    configs = {"text_config": text, "vision_config": vision, **marks}
    encoder = readers.Qwen2_5_VLConfig(**configs, tie_word_embeddings=True)
    own = {"num_layers": layers, "num_attention_heads": width // raw["attention_head_dim"]}
    own |= {"joint_attention_dim": text["hidden_size"]}
    vae = {**raw["vae"], "base_dim": 8, "num_res_blocks": 1}
    getattr(parts, kind)(
        transformer=resized(raw, parts.QwenImageTransformer2DModel, **own),
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=parts.AutoencoderKLQwenImage.from_config(vae),
        text_encoder=readers.Qwen2_5_VLForConditionalGeneration(encoder),
        tokenizer=tokenizer,
        **({} if kind == "QwenImagePipeline" else edits),
    ).save_pretrained(folder)


def write_z_image(folder: Path, width: int, layers: int) -> None:
    """The parts of Z-Image: its transformer of this width, its scheduler, and small encoders of
    texts and images."""
    import diffusers as parts
    from transformers import Qwen3Config, Qwen3Model

    raw = read_sizes("Z-Image")
    tokenizer = build_qwen_tokenizer()
    encoder = Qwen3Config(**SMALL_QWEN, head_dim=32, vocab_size=len(tokenizer))
    heads = width // sum(raw["axes_dims"])
    own = {"dim": width, "n_layers": layers, "n_refiner_layers": 1, "n_heads": heads}
    own |= {"n_kv_heads": heads, "cap_feat_dim": encoder.hidden_size}
    network = resized(raw, parts.ZImageTransformer2DModel, **own)
    for token in (network.x_pad_token, network.cap_pad_token):
        token.data.normal_(std=0.02)  # diffusers leaves them zero
    parts.ZImagePipeline(
        transformer=network,
        scheduler=parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"]),
        vae=small_vae(raw, parts.AutoencoderKL),
        text_encoder=Qwen3Model(encoder),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


def resized(raw: dict[str, Any], kind: Any, **sizes: Any) -> Any:
    """A transformer of a published pipeline at other sizes."""
    own = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    return kind.from_config({**own, **sizes})


def small_vae(raw: dict[str, Any], kind: Any, **more: float) -> Any:
    """The autoencoder of a published pipeline at a small width."""
    sizes = {"block_out_channels": [32] * 4, "layers_per_block": 1}
    return kind.from_config({**raw["vae"], **sizes, **more})


def build_qwen_tokenizer(kind: str = "QwenImagePipeline") -> Any:
    """A tokenizer with the turns of Qwen's; texts are encoded to bytes, but for the words of what a
    pipeline of Qwen-Image writes before each text and counts as so many tokens."""
    import diffusers
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Tokenizer

    absent: Any = [None] * (5 if kind == "QwenImagePipeline" else 6)
    template = getattr(diffusers, kind)(*absent).prompt_template_encode
    plain: Any = Qwen2Tokenizer().backend_tokenizer
    cut = plain.pre_tokenizer.pre_tokenize_str(template)
    pairs = [(word[:n], word[n]) for word, _ in cut for n in range(1, len(word))]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, pairs)]
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys(words))}
    special = {"chat_template": TURNS}
    special["extra_special_tokens"] = ["<|im_start|>", "<|im_end|>", *(f"<|{n}|>" for n in MARKS)]
    return Qwen2Tokenizer(vocabulary, list(dict.fromkeys(pairs)), **special)


def write_sana(folder: Path, width: int, layers: int) -> None:
    """The parts of Sana_600M_512px: its transformer of this width, its scheduler, and a small Gemma
    and autoencoder; texts are encoded to bytes."""
    import diffusers as parts

    raw = read_sizes("Sana-0.6B-512px")
    tokenizer, encoder = build_gemma(raw["text_encoder"])
    heads = {"num_attention_heads": width // 32, "num_cross_attention_heads": width // 64}
    heads |= {"cross_attention_head_dim": 64, "cross_attention_dim": width}
    heads |= {"num_layers": layers, "caption_channels": 64}
    network = resized(raw, parts.SanaTransformer2DModel, **heads)
    sizes = {f"{side}_block_out_channels": [32] * 6 for side in SIDES}
    sizes |= {f"{side}_layers_per_block": [1] * 6 for side in SIDES}
    vae = parts.AutoencoderDC.from_config({**raw["vae"], **sizes, "attention_head_dim": 16})
    scheduler = parts.DPMSolverMultistepScheduler.from_config(raw["scheduler"])
    parts.SanaPipeline(tokenizer, encoder, vae, network, scheduler).save_pretrained(folder)


def write_lumina_image(folder: Path, width: int, layers: int) -> None:
    """The parts of Lumina-Image 2.0: its transformer of this width, its scheduler, and a small
    Gemma and autoencoder."""
    import diffusers as parts

    raw, heads = read_sizes("Lumina-Image-2.0"), width // 32
    tokenizer, encoder = build_gemma(raw["text_encoder"])
    own = {"hidden_size": width, "num_layers": layers, "num_refiner_layers": 1, "cap_feat_dim": 64}
    own |= {"num_attention_heads": heads, "num_kv_heads": heads // 2}
    own |= {"axes_dim_rope": (16, 8, 8)}
    network = resized(raw, parts.Lumina2Transformer2DModel, **own)
    vae = small_vae(raw, parts.AutoencoderKL)
    scheduler = parts.FlowMatchEulerDiscreteScheduler.from_config(raw["scheduler"])
    parts.Lumina2Pipeline(network, scheduler, vae, encoder, tokenizer).save_pretrained(folder)


def build_gemma(sizes: dict[str, Any]) -> tuple[Any, Any]:
    """A tokenizer to bytes, and a small text encoder of Gemma with the other keys of `sizes`."""
    from transformers import Gemma2Config, Gemma2Model, GemmaTokenizer

    marks = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *(f"<0x{n:02X}>" for n in range(256)))
    vocabulary = {word: n for n, word in enumerate(marks)}
    tokenizer = GemmaTokenizer(vocabulary, add_bos_token=True)
    text = {**sizes, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    return tokenizer, Gemma2Model(Gemma2Config(**{**text, "vocab_size": len(vocabulary)}))


def write_wan(folder: Path, width: int, layers: int, name: str = "Wan2.1-1.3B") -> None:
    """The parts of a published Wan: its transformer of this width, or both, its scheduler, and a
    small UMT5, CLIP and autoencoder."""
    import diffusers as parts
    import transformers as readers

    raw, tokenizer = read_sizes(name), build_t5_tokenizer()
    umt5 = readers.UMT5Config(**SMALL_T5, vocab_size=len(tokenizer), feed_forward_proj="gated-gelu")
    network: Any = {"num_layers": layers, "text_dim": SMALL_T5["d_model"], "ffn_dim": 2 * width}
    network |= {"num_attention_heads": width // raw["attention_head_dim"]}
    vae = {**raw["vae"], "base_dim": 8, "num_res_blocks": 1}
    vae |= {"decoder_base_dim": 8} if raw["vae"].get("decoder_base_dim") else {}
    vae["latents_mean"] = [0.01 * n for n in range(vae["z_dim"])]
    vae["latents_std"] = [1 + 0.1 * n for n in range(vae["z_dim"])]
    kind, second = parts.WanTransformer3DModel, raw.get("transformer_2")
    images: Any = {}
    if raw.get("image_dim"):
        network |= {"image_dim": 64, "added_kv_proj_dim": width}
        seen = readers.CLIPVisionConfig(**SMALL_CLIP, image_size=28, patch_size=14)
        images["image_encoder"] = readers.CLIPVisionModel(seen)
        sides = {"crop_size": {"height": 28, "width": 28}, "size": {"shortest_edge": 28}}
        images["image_processor"] = readers.CLIPImageProcessor(**sides)
    getattr(parts, raw["_class_name"])(
        **images,
        transformer=resized(raw, kind, **network),
        transformer_2=None if second is None else resized(second, kind, **network),
        boundary_ratio=raw.get("boundary_ratio"),
        expand_timesteps=raw.get("expand_timesteps", False),
        scheduler=parts.UniPCMultistepScheduler.from_config(raw["scheduler"]),
        vae=parts.AutoencoderKLWan.from_config(vae),
        text_encoder=readers.UMT5EncoderModel(umt5),
        tokenizer=tokenizer,
    ).save_pretrained(folder)


def build_t5_tokenizer() -> Any:
    """A tokenizer of T5's kind whose words are single characters."""
    from transformers import T5Tokenizer

    marks = ("<pad>", "</s>", "<unk>", "▁")
    return T5Tokenizer(
        [*((mark, 0.0) for mark in marks), *((chr(n), -4.0) for n in range(33, 127))]
    )


PIPELINES = {
    "flux": write_flux,
    "flux2_klein": write_flux2_klein,
    "flux_kontext": partial(write_flux, kind="FluxKontextPipeline"),
    "lumina_image": write_lumina_image,
    "qwen_image": write_qwen_image,
    "qwen_image_edit": partial(write_qwen_image, kind="QwenImageEditPipeline"),
    "sana": write_sana,
    "sd3": write_sd3,
    "wan": write_wan,
    "wan_image_to_video": partial(write_wan, name="Wan2.1-I2V-14B"),
    "z_image": write_z_image,
}
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
    from transformers import CLIPTextModelWithProjection

    return CLIPTextModelWithProjection(clip_config(tokenizer, **sizes))


def clip_config(tokenizer: Any, **sizes: Any) -> Any:
    """The configuration of a text encoder of CLIP for this tokenizer."""
    from transformers import CLIPTextConfig

    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return CLIPTextConfig(**sizes, vocab_size=len(tokenizer), **ids)


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
