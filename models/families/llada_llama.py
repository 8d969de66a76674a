"""LLaDA under HF-llama's names, as LLaDA-V's training prepares it: the language model alone.

`model_type` says `llada` here too, so these checkpoints are recognised by their keys.
"""

from collections.abc import Mapping
from typing import Any

from mmrl.models.families import llada, llada_v
from mmrl.models.families.family import core_alone

KIND, LAYOUTS, TOKEN_IDS, layouts = llada.KIND, llada.LAYOUTS, llada.TOKEN_IDS, llada.layouts
KEYS, core_config = llada_v.KEYS, llada_v.core_config


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has llama's sizes and LLaDA's name."""
    return config.get("model_type") == "llada" and "hidden_size" in config


network = core_alone(core_config)
