"""LLaDA checkpoints (GSAI-ML/LLaDA-8B-*): configuration and tensor names.

The backbone is the core with plain multi-head attention, float32 rotary embedding and no biases.
`ff_out` names both a block's down projection and the output head; `ff_proj` is the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.layouts.layout import Layout
from models.layouts.text_layout import TextLayout
from models.network.core import MaskedTokenModel
from models.network.core_config import CoreConfig

_BLOCK = "model.transformer.blocks.{i}."
LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout}
"""What checkpoints can do, by the names that prompts carry, and the layout of each."""

KEYS = {
    "embed.weight": "model.transformer.wte.weight",
    "norm.weight": "model.transformer.ln_f.weight",
    "head.weight": "model.transformer.ff_out.weight",
    "blocks.{i}.attn_norm.weight": _BLOCK + "attn_norm.weight",
    "blocks.{i}.attn.q.weight": _BLOCK + "q_proj.weight",
    "blocks.{i}.attn.k.weight": _BLOCK + "k_proj.weight",
    "blocks.{i}.attn.v.weight": _BLOCK + "v_proj.weight",
    "blocks.{i}.attn.o.weight": _BLOCK + "attn_out.weight",
    "blocks.{i}.attn.q.bias": _BLOCK + "q_proj.bias",
    "blocks.{i}.attn.k.bias": _BLOCK + "k_proj.bias",
    "blocks.{i}.attn.v.bias": _BLOCK + "v_proj.bias",
    "blocks.{i}.mlp_norm.weight": _BLOCK + "ff_norm.weight",
    "blocks.{i}.mlp.gate.weight": _BLOCK + "ff_proj.weight",
    "blocks.{i}.mlp.up.weight": _BLOCK + "up_proj.weight",
    "blocks.{i}.mlp.down.weight": _BLOCK + "ff_out.weight",
}
"""Core tensor name -> public tensor name; `{i}` is the block number."""

_FIXED = {
    "block_type": "llama",
    "block_group_size": 1,
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "attention_layer_norm": False,
    "include_bias": False,
    "bias_for_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
}

BACKBONE = {
    **_FIXED,
    "rope_full_precision": True,
    "rms_norm_eps": 1e-5,
    "layer_norm_with_affine": True,
    "attention_layer_norm_with_affine": True,
    "include_qkv_bias": False,
    "weight_tying": False,
    "multi_query_attention": None,
    "attention_dropout": 0.0,
    "residual_dropout": 0.0,
    "embedding_dropout": 0.0,
    "flash_attention": False,
    "use_cache": False,
    "init_device": "cpu",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "init_cutoff_factor": None,
    "alibi_bias_max": 8.0,
    "precision": "amp_bf16",
}
"""Keys that the public code reads and that are the same for every LLaDA-type checkpoint."""


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's fields from a LLaDA `config.json`.

    Raises:
        ValueError: a key is missing, or asks for a variant that no public checkpoint uses.
    """
    for key, value in _FIXED.items():
        if config.get(key, value) not in (value, None):
            raise ValueError(f"config.json: {key} is {config[key]!r}; only {value!r} is supported")
    heads = _required(config, "n_heads")
    width = _required(config, "d_model")
    if width % heads:
        raise ValueError(f"config.json: d_model is {width}, no multiple of n_heads = {heads}")
    multi_query = 1 if config.get("multi_query_attention") else None
    return CoreConfig(
        hidden_size=width,
        num_layers=_required(config, "n_layers"),
        num_heads=heads,
        num_kv_heads=config.get("n_kv_heads") or multi_query or heads,
        head_dim=width // heads,
        mlp_size=config.get("mlp_hidden_size") or width * _required(config, "mlp_ratio"),
        vocab_size=config.get("embedding_size") or _required(config, "vocab_size"),
        norm_eps=config.get("rms_norm_eps", 1e-5),
        rope_theta=_required(config, "rope_theta"),
        rope_fp32=config.get("rope_full_precision", True),
        qkv_bias=bool(config.get("include_qkv_bias")),
        tied_head=bool(config.get("weight_tying")),
    )


def with_vocab_size(config: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """`config.json` for a model whose embedding has `rows` rows."""
    return {**config, "vocab_size": rows, "embedding_size": rows}


def network(core: CoreConfig, config: Mapping[str, Any]) -> MaskedTokenModel:
    """The core alone."""
    return MaskedTokenModel(core)


def _required(config: Mapping[str, Any], key: str) -> Any:
    if config.get(key) is None:
        raise ValueError(f"config.json lacks {key!r}; the directory is not a LLaDA-type checkpoint")
    if not isinstance(config[key], int | float):
        raise ValueError(f"config.json: {key} is {config[key]!r}; it must be a number")
    return config[key]
