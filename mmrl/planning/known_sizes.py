"""The network of a policy without its weights: of its `config.json`, or of the published checkpoint
that it is where that is not on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from mmrl.config import check
from mmrl.models.families import find_family, get_family
from mmrl.models.network.token_network import TokenNetwork
from mmrl.models.task_names import writes_images
from mmrl.pretrained.known import PUBLIC_SIZES, known_config

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
CODES = 8192
"""Codes of the published image tokenizers."""


SIZES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("published_sizes.yaml").read_text(encoding="utf-8")
)
"""What of the `config.json` of published checkpoints says their sizes, by the names of
`PUBLIC_SIZES`."""


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


def outline_policy(raw: Mapping[str, Any]) -> TokenNetwork:
    """The network of a config.json on the meta device."""
    with torch.device("meta"):
        return get_family(raw).network(raw)


def count_weights(network: TokenNetwork) -> int:
    """Parameters of a network, and of what is loaded beside it."""
    return sum(p.numel() for p in network.parameters()) + network.count_parts()


def count_columns(task: str, network: TokenNetwork, raw: Mapping[str, Any]) -> int:
    """Columns of the logits of a task: image codes, or the whole vocabulary."""
    return raw.get("codebook_size", CODES) if writes_images(task) else network.vocab_size
