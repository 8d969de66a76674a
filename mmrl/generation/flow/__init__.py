"""Generation by denoising a latent: its schedules of noise levels and the steps between them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.generation.flow.schedules import make_sigmas
    from mmrl.generation.flow.transitions import transition

_MODULES = {
    "make_sigmas": "mmrl.generation.flow.schedules",
    "transition": "mmrl.generation.flow.transitions",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: settings are read without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
