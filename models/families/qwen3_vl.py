"""Qwen3-VL (Qwen/Qwen3-VL-2B-Instruct … 32B): text about images, transformers' own classes."""

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.models.families import causal_lm
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.network.causal_vlm import CausalVLM

KIND, TOKEN_IDS = causal_lm.KIND, causal_lm.TOKEN_IDS
VOCAB_KEYS, PUBLIC_CODE = causal_lm.VOCAB_KEYS, causal_lm.PUBLIC_CODE
LAYOUTS: dict[str, type[Layout]] = {}
KEYS = {"head.weight": "lm_head.weight", "head.": "lm_head.", "body.": "model."}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json says so."""
    return config.get("model_type") == "qwen3_vl"


def network(config: Mapping[str, Any]) -> CausalVLM:
    """transformers' network; see `Family.network`."""
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for key in ("image_token_id", "vision_start_token_id"):
        read_number(config, key, least=0)
    sizes = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    return CausalVLM(AutoModelForImageTextToText.from_config(sizes, dtype=torch.float32))


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text, and text about images; see `Family.layouts`."""
    return {}
