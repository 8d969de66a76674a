"""Qwen2.5-VL (Qwen/Qwen2.5-VL-3B-Instruct … 72B): Qwen3-VL's network under other names."""

from collections.abc import Mapping
from typing import Any

from mmrl.models.families import qwen3_vl

KIND, TOKEN_IDS, LAYOUTS = qwen3_vl.KIND, qwen3_vl.TOKEN_IDS, qwen3_vl.LAYOUTS
network, layouts = qwen3_vl.network, qwen3_vl.layouts
KEYS = {
    "head.weight": "lm_head.weight",
    "head.": "lm_head.",
    "body.visual.": "visual.",
    "body.language_model.": "model.",
}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json says so."""
    return config.get("model_type") == "qwen2_5_vl"
