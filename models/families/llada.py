"""LLaDA checkpoints (GSAI-ML/LLaDA-8B-*): configuration and tensor names.

The backbone is the core with plain multi-head attention, float32 rotary embedding and no biases.
`ff_out` names both a block's down projection and the output head; `ff_proj` is the gate.
"""

from collections.abc import Mapping
from typing import Any

from mmrl.models.families.family import (
    LayoutInputs,
    check_variant,
    core_alone,
    read_head_dim,
    read_number,
    token_ids,
)
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.network.core_config import CoreConfig

KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout}
TOKENS = {"mask": "<|mdm_mask|>", "eos": "<|endoftext|>", "eot": "<|eot_id|>"}
"""Special tokens of text: the mask, and the ends of a text and of a turn."""
TOKEN_IDS = {
    "<|startoftext|>": 126080,
    "<|endoftext|>": 126081,
    **{f"<|reserved_token_{n}|>": 126084 + n for n in range(252)},
    "<|mdm_mask|>": 126336,
    "<|start_header_id|>": 126346,
    "<|end_header_id|>": 126347,
    "<|eot_id|>": 126348,
}
"""Special tokens of the public vocabulary. The tokenizer of LLaDA-8B-Base lacks the last three."""
_BLOCK = "model.transformer.blocks.{i}."
KEYS = {
    "embed.weight": "model.transformer.wte.weight",
    "norm.weight": "model.transformer.ln_f.weight",
    "head.weight": "model.transformer.ff_out.weight",
    "blocks.{i}.attn_norm.weight": _BLOCK + "attn_norm.weight",
    **{f"blocks.{{i}}.attn.{r}.weight": f"{_BLOCK}{r}_proj.weight" for r in "qkv"},
    **{f"blocks.{{i}}.attn.{r}.bias": f"{_BLOCK}{r}_proj.bias" for r in "qkv"},
    "blocks.{i}.attn.o.weight": _BLOCK + "attn_out.weight",
    "blocks.{i}.mlp_norm.weight": _BLOCK + "ff_norm.weight",
    "blocks.{i}.mlp.gate.weight": _BLOCK + "ff_proj.weight",
    "blocks.{i}.mlp.up.weight": _BLOCK + "up_proj.weight",
    "blocks.{i}.mlp.down.weight": _BLOCK + "ff_out.weight",
}

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


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has LLaDA's keys."""
    return config.keys() >= {"d_model", "n_heads", "mask_token_id"}


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's sizes from config.json; see `Family.network`."""
    check_variant(config, _FIXED)
    head_dim = read_head_dim(config, "d_model", "n_heads")
    width, heads = config["d_model"], config["n_heads"]
    multi_query = 1 if config.get("multi_query_attention") else None
    return CoreConfig(
        hidden_size=width,
        num_layers=read_number(config, "n_layers"),
        num_heads=heads,
        num_kv_heads=read_number(config, "n_kv_heads", multi_query or heads),
        head_dim=head_dim,
        mlp_size=read_number(config, "mlp_hidden_size", 0, 0)
        or width * read_number(config, "mlp_ratio"),
        vocab_size=config.get("embedding_size") or read_number(config, "vocab_size"),
        norm_eps=read_number(config, "rms_norm_eps", 1e-5, 0, whole=False),
        rope_theta=read_number(config, "rope_theta", whole=False),
        rope_fp32=config.get("rope_full_precision", True),
        qkv_bias=bool(config.get("include_qkv_bias")),
        tied_head=bool(config.get("weight_tying")),
    )


network = core_alone(core_config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text alone; see `Family.layouts`."""
    return {"text": text_layout(inputs)}


def text_layout(inputs: LayoutInputs, ids: Mapping[str, int] | None = None) -> TextLayout:
    """The layout of text; `ids` are those of LLaDA's special tokens by default."""
    tokenizer, options = inputs.tokenizer, inputs.options
    return TextLayout(
        tokenizer,
        token_ids(tokenizer, TOKENS) if ids is None else ids,
        options.max_prompt_length,
        options.max_completion_length,
        options.chat_template,
    )
