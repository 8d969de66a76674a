"""LLaDA under HF-llama's names, as LLaDA-V's training prepares it: the language model alone.

`model_type` says `llada` here too, so these checkpoints are recognised by their keys.
"""

from collections.abc import Mapping
from typing import Any

from mmrl.models.families import llada_v
from mmrl.models.families.llada import LAYOUTS, TOKEN_IDS, layouts
from mmrl.models.families.llada_v import PUBLIC_CODE, VOCAB_KEYS, core_config
from mmrl.models.network.core import MaskedTokenModel

__all__ = [
    "KEYS",
    "LAYOUTS",
    "PUBLIC_CODE",
    "TOKEN_IDS",
    "VOCAB_KEYS",
    "core_config",
    "layouts",
    "matches",
]

KEYS = {core: name for core, name in llada_v.KEYS.items() if not core.startswith("vision.")}


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json has llama's sizes and LLaDA's name."""
    return config.get("model_type") == "llada" and "hidden_size" in config


def network(config: Mapping[str, Any]) -> MaskedTokenModel:
    """The core alone."""
    return MaskedTokenModel(core_config(config))
