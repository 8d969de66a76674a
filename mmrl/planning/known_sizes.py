"""The network of a policy without its weights: of its `config.json`, or of the published checkpoint
that it is where that is not on this machine."""

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.config import check
from mmrl.models.families import find_family, get_family
from mmrl.models.network.network import Network
from mmrl.models.task_names import writes_images
from mmrl.pretrained.known import PUBLIC_SIZES, known_config

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
CODES = 8192
"""Codes of the published image tokenizers."""


def _name_sizes(
    width: int, layers: int, heads: int, mlp: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """The names of transformers."""
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**sizes, "intermediate_size": mlp, "vocab_size": vocabulary, "rope_theta": 1e6, **more}


def _name_llada(embeddings: int, **more: Any) -> dict[str, Any]:
    """The names of LLaDA's own code, with the sizes of its 8B checkpoints."""
    sizes = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "mlp_hidden_size": 12288}
    return {**sizes, "embedding_size": embeddings, "rope_theta": 5e5, **more}


_SDAR: dict[str, Any] = {"model_type": "sdar", "num_key_value_heads": 8, "head_dim": 128}
_AMUSED: dict[str, Any] = {
    "_class_name": "AmusedPipeline",
    "vocab_size": CODES + 64,
    "codebook_size": CODES,
    "text_encoder": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    | {"projection_dim": 768},
    "vqvae": {"block_out_channels": [128, 256, 256, 512, 768]},
}
SIZES: dict[str, dict[str, Any]] = {
    "LLaDA-8B": _name_llada(126464, model_type="llada"),
    "LLaDA-V-8B": _name_sizes(4096, 32, 32, 12288, 126464, model_type="llava_llada"),
    "MMaDA-8B": _name_llada(134656, model_type="mmada", codebook_size=CODES, num_vq_tokens=1024),
    "Lumina-DiMOO-8B": _name_llada(134548, model_type="llada", codebook_size=CODES)
    | {"architectures": ["LLaDAForMultiModalGeneration"]},
    "Dream-7B": _name_sizes(3584, 28, 28, 18944, 152064, model_type="Dream", num_key_value_heads=4),
    "SDAR-4B": _name_sizes(2560, 36, 32, 9728, 151936, **_SDAR),
    "SDAR-8B": _name_sizes(4096, 36, 32, 12288, 151936, **_SDAR),
    "aMUSEd-256": _AMUSED | {"sample_size": 16},
    "aMUSEd-512": _AMUSED | {"sample_size": 32, "downsample": True, "upsample": True},
}
"""What of the `config.json` of published checkpoints says their sizes, by the names of
`PUBLIC_SIZES`; aMUSEd's without the defaults of its classes."""


def find_sizes(path_or_hub_id: str) -> tuple[str | None, Mapping[str, Any]]:
    """None and `config.json` of a checkpoint; where that is not on this machine, name and sizes of
    the published one that it is.

    Raises:
        ConfigError: it is neither here nor published.
    """
    raw = known_config(path_or_hub_id)
    if raw is not None and find_family(raw) is not None:
        return None, raw
    names = [name for start, name in PUBLIC_SIZES.items() if path_or_hub_id.startswith(start)]
    check(bool(names), "model.path", path_or_hub_id, "a checkpoint whose sizes are known")
    return names[0], SIZES[names[0]]


def outline_policy(raw: Mapping[str, Any]) -> Network:
    """The network of a config.json on the meta device."""
    with torch.device("meta"):
        return get_family(raw).network(raw)


def count_weights(network: Network) -> int:
    """Parameters of a network, and of what is loaded beside it."""
    return sum(p.numel() for p in network.parameters()) + network.count_parts()


def count_columns(task: str, network: Network, raw: Mapping[str, Any]) -> int:
    """Columns of the logits of a task: image codes, or the whole vocabulary."""
    return raw.get("codebook_size", CODES) if writes_images(task) else network.vocab_size
