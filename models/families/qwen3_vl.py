"""Qwen3-VL (Qwen/Qwen3-VL-2B-Instruct … 32B): text about images, transformers' own classes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from mmrl.models.families import causal_lm
from mmrl.models.families.family import LayoutInputs, read_number
from mmrl.models.layouts.causal_images import CausalImages, check_template, load_reader
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import CausalText
from mmrl.models.network.causal_vlm import CausalVLM

KIND, TOKEN_IDS = causal_lm.KIND, causal_lm.TOKEN_IDS
LAYOUTS: dict[str, type[Layout]] = {"text": CausalText, "image_to_text": CausalImages}
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
    config, tower = inputs.network.public_config, inputs.network.public_config["vision_config"]
    image = config["image_token_id"]
    banned = tuple(config[key] for key in ("image_token_id", "video_token_id") if key in config)
    text = replace(causal_lm.text_layout(inputs), banned=banned)
    mark = inputs.tokenizer.convert_ids_to_tokens(image)
    check_template(inputs.tokenizer, str(mark), inputs.options.chat_template)
    reader = load_reader(inputs.directory, inputs.options)
    for key, name in (("patch_size", "patch_size"), ("merge_size", "spatial_merge_size")):
        if (own := getattr(reader.processor, key)) != tower.get(name, own):
            raise ValueError(f"preprocessor_config.json: {key} is {own}, the tower's {tower[name]}")
    longest = config.get("text_config", config).get("max_position_embeddings")
    return {"text": text, "image_to_text": CausalImages(text, image, reader, longest)}
