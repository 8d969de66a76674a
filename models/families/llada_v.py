"""LLaDA-V checkpoints (arXiv 2505.16933): configuration, tensor names, and the vision tower.

The language model is LLaDA's under HF-llama's names, with rotary angles in the precision of the
activations and logits in float32. The public loader drops vocabulary rows beyond the tokenizer;
here they are kept, and no response takes them."""

import re
from collections.abc import Mapping
from typing import Any

from mmrl.models.families import llada
from mmrl.models.families.family import LayoutInputs, check_variant, read_sizes, token_ids
from mmrl.models.layouts.anyres import Tiling, read_grids
from mmrl.models.layouts.image_chat import ImageChat
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.core_config import CoreConfig
from mmrl.models.network.vision import SO400M, UNREAD, Vision

KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout, "image_to_text": ImageChat}
TOKENS = {
    **llada.TOKENS,
    "bos": "<|startoftext|>",
    "header": "<|start_header_id|>",
    "end_header": "<|end_header_id|>",
}
"""Special tokens of text and of turns."""
TOKEN_IDS = llada.TOKEN_IDS
_BLOCK, CORE_MLP = "model.layers.{i}.", "blocks.{i}.mlp."
KEYS = {
    "embed.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
    "blocks.{i}.attn_norm.weight": _BLOCK + "input_layernorm.weight",
    **{f"blocks.{{i}}.attn.{r}.weight": f"{_BLOCK}self_attn.{r}_proj.weight" for r in "qkvo"},
    **{f"blocks.{{i}}.attn.{r}.bias": f"{_BLOCK}self_attn.{r}_proj.bias" for r in "qkv"},
    **{f"blocks.{{i}}.attn.{r}_norm.weight": f"{_BLOCK}self_attn.{r}_norm.weight" for r in "qk"},
    "blocks.{i}.mlp_norm.weight": _BLOCK + "post_attention_layernorm.weight",
    **{f"{CORE_MLP}{r}.weight": f"{_BLOCK}mlp.{r}_proj.weight" for r in ("gate", "up", "down")},
    "vision.newline": "model.image_newline",
    "vision.projector.": "model.mm_projector.",
    "vision.tower.": "model.vision_tower.vision_tower.vision_model.",
}

_FIXED = {
    "attention_bias": False,
    "mm_projector_type": "mlp2x_gelu",
    "mm_patch_merge_type": "spatial_unpad",
    "mm_newline_position": "grid",
    "mm_vision_select_feature": "patch",
    "mm_vision_select_layer": -2,
    "mm_use_im_start_end": False,
    "mm_use_im_patch_token": False,
}
"""Keys that are equal in every LLaDA-V-type checkpoint that has them."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has llama's sizes and grids of tiles."""
    return config.keys() >= {"hidden_size", "image_grid_pinpoints"}


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's sizes from config.json; see `Family.network`."""
    check_variant(config, _FIXED)
    return CoreConfig(**read_sizes(config, eps=1e-5), rope_fp32=False, logits_fp32=True)


def network(config: Mapping[str, Any]) -> MaskedTokenModel:
    """The core with a vision tower before it. Raises ValueError: see `core_config`; also impossible
    sizes of the tower, or an unknown tiling."""
    model = MaskedTokenModel(core_config(config))
    sizes = tower_sizes(config)
    kept = sizes["num_hidden_layers"] + _FIXED["mm_vision_select_layer"] + 1
    sizes = {**sizes, "num_hidden_layers": kept}
    model.vision = Vision(sizes, model.width, tiling(config))
    model.unread = {f"vision.{name}" for name in UNREAD}
    return model


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text, and text about images; see `Family.layouts`."""
    vision, text = inputs.network.vision, llada.text_layout(inputs)
    ids = token_ids(inputs.tokenizer, TOKENS)
    longest = inputs.network.public_config.get("tokenizer_model_max_length")
    return {"text": text, "image_to_text": ImageChat(text, ids, vision.tiling, longest)}


def tower_sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the whole SigLIP tower: those under `vision`, or of the public one. Raises
    ValueError: one is missing, or is not that of the projector."""
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
    """How images are cut. Raises ValueError: it is not by any-resolution tiling."""
    aspect = str(config.get("image_aspect_ratio", "anyres_max_4"))
    found = re.fullmatch(r"anyres_max_([1-9]\d*)", aspect)
    if found is None:
        raise ValueError(
            f"config.json: image_aspect_ratio is {aspect!r}; only 'anyres_max_' with a number of"
            " tiles is supported"
        )
    sizes = tower_sizes(config)
    grids = read_grids(config.get("image_grid_pinpoints", "(1x1),...,(6x6)"), sizes["image_size"])
    patches = sizes["image_size"] // sizes["patch_size"]
    return Tiling(sizes["image_size"], patches, grids, int(found.group(1)))
