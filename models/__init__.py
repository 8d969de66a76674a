"""Masked-token models: one core, adapters for the public checkpoints, and MAGVIT-v2."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.image_tokenizers.magvit import load_vq
    from models.loading import load_model, save_model
    from models.policy import Policy, load_policy

__all__ = ["Policy", "load_model", "load_policy", "load_vq", "save_model"]

_MODULES = {
    "Policy": "policy",
    "load_model": "loading",
    "load_policy": "policy",
    "load_vq": "image_tokenizers.magvit",
    "save_model": "loading",
}


def __getattr__(name: str) -> Any:
    """A name of `__all__`, whose module is imported when it is first asked for (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"models.{_MODULES[name]}"), name)
