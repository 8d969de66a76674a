"""Small causal checkpoints, as transformers saves them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SIZES: dict[str, Any] = {
    "vocab_size": 41,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
TYPES = {
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False},
    "qwen3-tied": {"model_type": "qwen3", "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": False},
    "llama": {"model_type": "llama", "tie_word_embeddings": False},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 4, "query_pre_attn_scalar": 8},
}
"""Settings of small checkpoints beside `SIZES`."""


def write_causal(folder: Path, name: str = "qwen3", **changes: Any) -> Any:
    """Write a checkpoint of random weights; transformers' model of it, in float32 eval mode."""
    config = {**SIZES, **TYPES[name], **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = CONFIG_MAPPING[config.pop("model_type")](**config)
        model = AutoModelForCausalLM.from_config(sizes)
        for weight in model.parameters():
            # far from the small weights of a start, so that errors show
            torch.nn.init.normal_(weight, std=0.5 if weight.ndim > 1 else 1.0)
    model.save_pretrained(folder)
    return model.eval()
