"""Any open_clip model as the two towers of a reward, named in the reward's configuration."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError

from mmrl.config import NotHereError, import_extra
from rewards.networks.architectures import resolve_architecture, resolve_weights, uses_quick_gelu
from rewards.networks.dual_encoder import DualEncoder


def open_clip_encoder(
    prefix: str, model: str, pretrained: str | None, **settings: Any
) -> DualEncoder:
    """Load a model with its own tokenizer and image transform.

    Args:
        prefix: of the configuration keys `model` and `pretrained`, for messages: "clip.".
        model: built-in architecture, directory with `open_clip_config.json` and weights, or
            `hf-hub:owner/name`.
        pretrained: tag or checkpoint file of a built-in architecture; None takes `openai`.
        settings: device, dtype, batch_size and fill of `DualEncoder`.

    Raises:
        FileNotFoundError, ValueError: model or weights that do not exist or cannot be read;
            NotHereError where they are to come from the hub.
    """
    architecture = resolve_architecture(model, f"{prefix}model")
    weights = resolve_weights(architecture, pretrained, f"{prefix}pretrained")
    network, transform, tokenizer = _load(architecture, weights, prefix)
    return DualEncoder(network, tokenizer, transform, **settings)


def _load(architecture: str, weights: str | None, prefix: str) -> tuple[Any, Any, Any]:
    """Network, image transform and tokenizer."""
    open_clip = import_extra("open_clip", "clip")
    here = architecture.startswith("local-dir:") or Path(weights or "").is_file()
    try:
        loaded: Any = open_clip.create_model_from_pretrained(
            architecture,
            pretrained=weights,
            force_quick_gelu=uses_quick_gelu(architecture, weights),
            weights_only=True,
        )
        return *loaded, open_clip.get_tokenizer(architecture)
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, SafetensorError) as error:
        kind = ValueError if here else NotHereError
        raise kind(
            f"{prefix}model {architecture!r} with weights {weights!r} could not be loaded:"
            f" {error}. Check that the checkpoint is complete and belongs to this architecture."
        ) from error
