"""Small causal checkpoints, as transformers saves them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.models.llada_tokenizer import character_tokenizer

SIZES: dict[str, Any] = {"vocab_size": 41, "hidden_size": 32, "intermediate_size": 48}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"head_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TYPES = {
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False},
    "qwen3-tied": {"model_type": "qwen3", "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": False},
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 4, "query_pre_attn_scalar": 8},
}
"""Settings of small checkpoints beside `SIZES`."""


def write_causal(folder: Path, name: str = "qwen3", deviation: float = 0.5, **changes: Any) -> Any:
    """Write a checkpoint of random weights; transformers' model of it, in float32 eval mode."""
    config = {**SIZES, **TYPES[name], **changes}
    with torch.random.fork_rng(devices=[]):
        sizes = CONFIG_MAPPING[config.pop("model_type")](**config)
        model = AutoModelForCausalLM.from_config(sizes)
    return save_drawn(model, folder, deviation)


def save_drawn(model: Any, folder: Path, deviation: float) -> Any:
    """Draw weights far from the small ones of a start, so that errors show, and save them."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        size = deviation if weight.ndim > 1 else 1.0
        torch.nn.init.normal_(weight, std=size, generator=generator)
    model.save_pretrained(folder)
    return model.eval()


IMAGE, OPEN, CLOSE = 35, 37, 38
SEEING = {
    "qwen3_vl": {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
    "qwen2_5_vl": {"window_size": 8, "fullatt_block_indexes": [1]},
}
"""Settings of small vision towers."""


def write_seeing(folder: Path, name: str, **text: Any) -> Any:
    """Write a checkpoint that sees, of random weights: an image is patches of 4 x 4 pixels, four of
    which are a token; transformers' model of it, in float32 eval mode. `text`: changes of the sizes
    of the language model, and the ids of special tokens."""
    kind: Any = CONFIG_MAPPING[name]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    tower = {"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2}
    tower |= {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
    tower |= {"out_hidden_size": SIZES["hidden_size"], **SEEING[name]}
    ids = {"image_token_id": IMAGE, "video_token_id": 36}
    ids |= {"vision_start_token_id": OPEN, "vision_end_token_id": CLOSE}
    ids |= {key: text.pop(key) for key in ids if key in text}
    text = {**SIZES, "rope_parameters": rope, **text}
    with torch.random.fork_rng(devices=[]):
        config = kind(text_config=text, vision_config=tower, tie_word_embeddings=False, **ids)
        model = AutoModelForImageTextToText.from_config(config)
    return save_drawn(model, folder, 0.3)


VISION = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
VISION |= {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
"""Special tokens of Qwen-VL by their keys in config.json."""
IMAGE_TURNS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
"""A chat template with image parts, in the form of Qwen-VL's."""


def write_qwen_vl(folder: Path, name: str) -> Any:
    """Write a whole checkpoint that sees, with tokenizer and image processor; transformers' model
    of it. Images have from 2 to 9 tokens."""
    ends = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = character_tokenizer([*ends, *VISION.values()])
    tokenizer.chat_template, tokenizer.eos_token = IMAGE_TURNS, "<|im_end|>"
    tokenizer.save_pretrained(folder)
    size = {"shortest_edge": 2 * 8 * 8, "longest_edge": 9 * 8 * 8}
    Qwen2VLImageProcessorPil(patch_size=4, size=size).save_pretrained(folder)
    words = tokenizer.get_vocab()
    ids = {key: words[word] for key, word in VISION.items()}
    ids |= {"eos_token_id": words["<|im_end|>"], "bos_token_id": None, "pad_token_id": None}
    rows = -(-len(tokenizer) // 8) * 8
    return write_seeing(folder, name, vocab_size=rows, **ids)
