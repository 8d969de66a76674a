"""Causal language models of transformers' own classes: Qwen3, Qwen2, Llama, Mistral, Gemma."""

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.models.families.family import LayoutInputs, check_variant, read_number
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import CausalText
from mmrl.models.network.causal_lm import CausalLM

KIND: str = "causal"
LAYOUTS: dict[str, type[Layout]] = {"text": CausalText}
TOKEN_IDS: dict[str, int] = {}
KEYS = {"head.weight": "lm_head.weight", "head.": "lm_head.", "body.": "model."}

MODEL_TYPES = ("qwen3", "qwen2", "llama", "mistral", "gemma", "gemma3_text")
"""`model_type` of the checkpoints that are tested."""
_PLAIN = {"final_logit_softcapping": None, "logit_scale": None, "logits_scaling": None}
"""Logits are the product with the output matrix and nothing else."""


def matches(config: Mapping[str, Any]) -> bool:
    """Whether `model_type` is one of `MODEL_TYPES`; others of the same classes have masks."""
    return config.get("model_type") in MODEL_TYPES


def network(config: Mapping[str, Any]) -> CausalLM:
    """transformers' network; see `Family.network`."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    check_variant(config, _PLAIN)
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
        read_number(config, key)
    sizes = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    return CausalLM(AutoModelForCausalLM.from_config(sizes, dtype=torch.float32))


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text alone; see `Family.layouts`."""
    return {"text": text_layout(inputs)}


def text_layout(inputs: LayoutInputs) -> CausalText:
    """The layout of text. A text ends with the tokenizer's end token or one that config.json names.
    Raises ValueError: there is none."""
    tokenizer, options, config = inputs.tokenizer, inputs.options, inputs.network.public_config
    stated = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
    known = [tokenizer.eos_token_id, *(stated if isinstance(stated, list) else [stated])]
    ends = tuple(dict.fromkeys(each for each in known if each is not None))
    if not ends:
        raise ValueError(
            "neither the tokenizer nor config.json has an end of text (eos_token_id), so that every"
            " completion would be cut"
        )
    return CausalText(
        tokenizer,
        {"eos": ends[0], "eot": ends[0]},
        options.max_prompt_length,
        options.max_completion_length,
        options.chat_template,
        ends=ends[1:],
    )
