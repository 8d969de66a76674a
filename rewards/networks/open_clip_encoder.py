"""Any open_clip model as the two towers of a reward, named in the reward's configuration."""

import logging
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError

from mmrl.config import NotHereError, check, check_choice, import_extra
from mmrl.config.checks import explain_absence, is_cached
from mmrl.rewards.networks.dual_encoder import DualEncoder, EncoderReward
from mmrl.rewards.networks.placement import NetworkOptions
from mmrl.rewards.parsing.images import keep_tensor_steps


@dataclass(kw_only=True, eq=False)
class OpenCLIPReward(EncoderReward):
    """A reward whose encoder is an open_clip model."""

    model: str = "ViT-L-14"
    """Built-in architecture, directory with `open_clip_config.json` and weights, or
    `hf-hub:owner/name`."""
    pretrained: str | None = None
    """Tag or checkpoint file of a built-in architecture; null takes `openai`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoder = load_encoder(f"{self.where}.", self.model, self.pretrained, self)


def load_encoder(
    prefix: str, model: str, pretrained: str | None, options: NetworkOptions
) -> DualEncoder:
    """Load the `model` of an `OpenCLIPReward` with its own tokenizer and image transform, without
    running anything; `prefix` is that of its configuration keys, for messages: "clip." Raises what
    `NetworkOptions` says."""
    open_clip = import_extra("open_clip", "clip")
    architecture = resolve_architecture(model, f"{prefix}model")
    weights = _resolve_weights(architecture, pretrained, f"{prefix}pretrained")
    silent = logging.root.manager.disable
    logging.disable(logging.ERROR)  # it logs what it raises
    try:
        loaded: Any = open_clip.create_model_from_pretrained(
            architecture,
            pretrained=weights,
            force_quick_gelu=uses_quick_gelu(architecture, weights),
            weights_only=True,
        )
        tokenizer = open_clip.get_tokenizer(architecture)
    except (RuntimeError, ValueError, OSError, EOFError, UnpicklingError, SafetensorError) as error:
        parts = _published(architecture, weights).get("hf_hub", "").split("/")
        hub_id = "/".join(parts[:2]) or architecture.partition("hf-hub:")[2]
        if hub_id and not is_cached(hub_id):
            absence = f"with weights {weights!r}: {explain_absence(hub_id, error)}"
            raise NotHereError(f"{prefix}model {model!r} {absence}") from None
        raise ValueError(
            f"{prefix}model {architecture!r} with weights {weights!r} could not be loaded:"
            f" {error}. Check that the checkpoint is complete and belongs to this architecture."
        ) from error
    finally:
        logging.disable(silent)
    network, transform = loaded
    return DualEncoder(network, tokenizer, transform, keep_tensor_steps(transform), options)


def resolve_architecture(model: str, key: str) -> str:
    """The name open_clip's loader takes for `OpenCLIPReward.model`. Raises FileNotFoundError: a
    directory without `open_clip_config.json`; the message names `key`. Raises ValueError: neither a
    directory nor a built-in architecture, or no open_clip."""
    open_clip = import_extra("open_clip", "clip")
    if model.startswith("hf-hub:"):
        return model
    if Path(model).is_dir():
        if not (Path(model) / "open_clip_config.json").is_file():
            raise FileNotFoundError(
                f"{key} is the directory {model!r}, which holds no open_clip_config.json; name a"
                " directory that open_clip wrote, or a built-in architecture such as ViT-L-14."
            )
        return f"local-dir:{model}"
    name = model.replace("/", "-")
    check_choice(key, name, open_clip.list_models())
    return name


def _resolve_weights(architecture: str, pretrained: str | None, key: str) -> str | None:
    """The checkpoint of a resolved architecture: a file or a published tag; None where a directory
    or hub id holds the weights."""
    from open_clip.pretrained import list_pretrained_tags_by_model

    if architecture.startswith(("hf-hub:", "local-dir:")):
        allowed = f"null, because {architecture} brings its own weights"
        check(pretrained is None, key, pretrained, allowed)
        return None
    if pretrained is not None and Path(pretrained).is_file():
        return pretrained
    tags = list_pretrained_tags_by_model(architecture)
    if pretrained is None and "openai" in tags:
        return "openai"
    check_choice(key, pretrained, tags or ["<path of a checkpoint file>"])
    return pretrained


def uses_quick_gelu(architecture: str, pretrained: str | None) -> bool:
    """Whether these published weights were trained with QuickGELU.

    The architecture file does not say: `ViT-L-14` names plain GELU, while its `openai` weights
    need QuickGELU and score differently, without an error, when run with the other activation.
    """
    return bool(_published(architecture, pretrained).get("quick_gelu", False))


def _published(architecture: str, pretrained: str | None) -> dict[str, Any]:
    """What open_clip knows of published weights."""
    from open_clip.pretrained import get_pretrained_cfg

    return (get_pretrained_cfg(architecture, pretrained) if pretrained else None) or {}
