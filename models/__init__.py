"""Masked-token models: one core, families of public checkpoints, and image tokenizers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.models.image_tokenizers.image_tokenizer import load_vq
    from mmrl.models.loading import load_model
    from mmrl.models.policy import Policy, load_policy

_MODULES = {
    "Policy": "mmrl.models.policy",
    "load_model": "mmrl.models.loading",
    "load_policy": "mmrl.models.policy",
    "load_vq": "mmrl.models.image_tokenizers.image_tokenizer",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: settings are read without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
