"""The network of a policy without its weights: of its `config.json`, or of the published checkpoint
that it is where that is not on this machine."""

from collections.abc import Mapping
from typing import Any

import torch

from mmrl.config import check
from mmrl.models.families import find_family, get_family
from mmrl.models.network.network import Network
from mmrl.models.task_names import writes_images
from mmrl.pretrained.known import find_published, known_config

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
CODES = 8192
"""Codes of the published image tokenizers."""


def find_sizes(path_or_hub_id: str) -> tuple[str | None, Mapping[str, Any]]:
    """None and `config.json` of a checkpoint; where that is not on this machine, name and sizes of
    the published one that it is. Raises ConfigError: it is neither here nor published."""
    raw = known_config(path_or_hub_id)
    if raw is not None and find_family(raw) is not None:
        return None, raw
    name, sizes = find_published(path_or_hub_id)
    check(bool(name), "model.path", path_or_hub_id, "a checkpoint whose sizes are known")
    return name, sizes


def outline_policy(raw: Mapping[str, Any]) -> Network:
    """The network of a config.json on the meta device."""
    with torch.device("meta"):
        return get_family(raw).network(raw)


def count_weights(network: Network) -> int:
    """Parameters of a network, and of what is loaded beside it."""
    return sum(p.numel() for p in network.parameters()) + sum(network.count_parts().values())


def count_columns(task: str, network: Network, raw: Mapping[str, Any]) -> int:
    """Columns of the logits of a task: image codes, or the whole vocabulary; 0 without tokens."""
    if network.vocab_size == 0:
        return 0
    return raw.get("codebook_size", CODES) if writes_images(task) else network.vocab_size
