"""LLaDA-V checkpoints (arXiv 2505.16933): configuration, tensor names, and the network with eyes.

The language model is LLaDA's under HF-llama's names, with rotary angles in the precision of the
activations and logits in float32. Prompts show images through `models.network.vision`. The public
loader cuts vocabulary rows beyond the tokenizer; here they stay, and the response vocabulary ends
there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from models.layouts.anyres import Tiling, grids_between
from models.layouts.image_chat import ImageChat
from models.layouts.layout import Layout
from models.layouts.text_layout import TextLayout
from models.network.core import MaskedTokenModel
from models.network.core_config import CoreConfig
from models.network.vision import SO400M, Vision

LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout, "image_to_text": ImageChat}
"""What checkpoints can do, by the names that prompts carry, and the layout of each."""

_BLOCK = "model.layers.{i}."
KEYS = {
    "embed.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
    "blocks.{i}.attn_norm.weight": _BLOCK + "input_layernorm.weight",
    "blocks.{i}.attn.q.weight": _BLOCK + "self_attn.q_proj.weight",
    "blocks.{i}.attn.k.weight": _BLOCK + "self_attn.k_proj.weight",
    "blocks.{i}.attn.v.weight": _BLOCK + "self_attn.v_proj.weight",
    "blocks.{i}.attn.o.weight": _BLOCK + "self_attn.o_proj.weight",
    "blocks.{i}.mlp_norm.weight": _BLOCK + "post_attention_layernorm.weight",
    "blocks.{i}.mlp.gate.weight": _BLOCK + "mlp.gate_proj.weight",
    "blocks.{i}.mlp.up.weight": _BLOCK + "mlp.up_proj.weight",
    "blocks.{i}.mlp.down.weight": _BLOCK + "mlp.down_proj.weight",
    "vision.newline": "model.image_newline",
    "vision.projector.": "model.mm_projector.",
    "vision.tower.": "model.vision_tower.vision_tower.vision_model.",
}
"""Core tensor name -> public tensor name; `{i}` is the block number, a final dot marks a prefix."""

FIXED = {
    "attention_bias": False,
    "hidden_act": "silu",
    "rope_scaling": None,
    "mm_projector_type": "mlp2x_gelu",
    "mm_patch_merge_type": "spatial_unpad",
    "mm_newline_position": "grid",
    "mm_vision_select_feature": "patch",
    "mm_vision_select_layer": -2,
    "mm_use_im_start_end": False,
    "mm_use_im_patch_token": False,
}
"""Keys that are the same for every LLaDA-V-type checkpoint, where they are given."""


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's fields from a LLaDA-V `config.json`.

    Raises:
        ValueError: a key is missing, or asks for a variant that no public checkpoint uses.
    """
    for key, value in FIXED.items():
        if config.get(key, value) != value:
            raise ValueError(f"config.json: {key} is {config[key]!r}; only {value!r} is supported")
    heads, width = _required(config, "num_attention_heads"), _required(config, "hidden_size")
    if width % heads:
        raise ValueError(
            f"config.json: hidden_size is {width}, no multiple of num_attention_heads = {heads}"
        )
    return CoreConfig(
        hidden_size=width,
        num_layers=_required(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=width // heads,
        mlp_size=_required(config, "intermediate_size"),
        vocab_size=_required(config, "vocab_size"),
        norm_eps=config.get("rms_norm_eps", 1e-5),
        rope_theta=_required(config, "rope_theta"),
        rope_fp32=False,
        tied_head=bool(config.get("tie_word_embeddings")),
        logits_fp32=True,
    )


def with_vocab_size(config: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """`config.json` for a model whose embedding has `rows` rows."""
    return {**config, "vocab_size": rows}


def network(core: CoreConfig, config: Mapping[str, Any]) -> MaskedTokenModel:
    """The core with a vision tower before it.

    Raises:
        ValueError: sizes of the tower or a tiling that cannot be.
    """
    model = MaskedTokenModel(core)
    sizes = tower_sizes(config)
    kept = sizes["num_hidden_layers"] + FIXED["mm_vision_select_layer"] + 1
    model.vision = Vision({**sizes, "num_hidden_layers": kept}, core.hidden_size, tiling(config))
    return model


def tower_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the whole SigLIP tower: those under `vision`, or of the public one.

    Raises:
        ValueError: one is missing, or is not that of the projector.
    """
    sizes = config.get("vision", SO400M)
    absent = sorted(SO400M.keys() - sizes.keys())
    if absent:
        raise ValueError(f"config.json: vision lacks {', '.join(absent)}; give all or no `vision`")
    size = sizes["hidden_size"]
    if config.get("mm_hidden_size", size) != size:
        raise ValueError(
            f"config.json: mm_hidden_size is {config['mm_hidden_size']} and the vision tower's"
            f" hidden_size {size}; they must be equal"
        )
    return dict(sizes)


def tiling(config: Mapping[str, Any]) -> Tiling:
    """How images are cut.

    Raises:
        ValueError: a setting that is not that of any-resolution tiling.
    """
    aspect = str(config.get("image_aspect_ratio", "anyres_max_4"))
    found = re.fullmatch(r"anyres_max_([1-9]\d*)", aspect)
    if found is None:
        raise ValueError(
            f"config.json: image_aspect_ratio is {aspect!r}; only 'anyres_max_' with a number of"
            " tiles is supported"
        )
    sizes = tower_sizes(config)
    grids = grids_between(str(config.get("image_grid_pinpoints", "(1x1),...,(6x6)")))
    patches = sizes["image_size"] // sizes["patch_size"]
    return Tiling(sizes["image_size"], patches, grids, int(found.group(1)))


def _required(config: Mapping[str, Any], key: str) -> Any:
    if config.get(key) is None:
        raise ValueError(f"config.json lacks {key!r}; the directory is no LLaDA-V-type checkpoint")
    if not isinstance(config[key], int | float):
        raise ValueError(f"config.json: {key} is {config[key]!r}; it must be a number")
    return config[key]
