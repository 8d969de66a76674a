"""SDAR checkpoints (JetLM/SDAR-*-Chat, arXiv 2510.06303) and TraDo (Gen-Verse/TraDo-*).

qwen3's block with norms of queries and keys, trained to write block by block: attention is causal
between blocks and full inside them. A qwen3 checkpoint becomes one by its config.json. The public
files name neither mask nor block size: `complete_config` adds them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmrl.models.families import dream, llada, llada_v
from mmrl.models.families.family import (
    LayoutInputs,
    check_variant,
    core_alone,
    read_number,
    read_sizes,
)
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.network.core_config import CoreConfig

KIND: str = "masked"
LAYOUTS: dict[str, type[Layout]] = {"text": TextLayout}
MASK_ID, BLOCK_SIZE = 151669, 4
"""What public checkpoints are trained with where neither their config.json nor their name says."""
TOKEN_IDS = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}
"""Special tokens of the public vocabulary; files of one checkpoint spell the mask differently."""
KEYS = llada_v.KEYS


def matches(config: Mapping[str, Any]) -> bool:
    """Whether config.json says so: its keys are qwen3's."""
    return str(config.get("model_type")).lower() == "sdar"


def complete_config(config: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Add the mask id and the block size that a config.json lacks. The name of the directory, or of
    its place in the cache of the hub, ends in the block size where that is not 4:
    `SDAR-4B-Chat-b16`."""
    names = [part for part in directory.parts if re.search(r"-b\d+$", part)]
    named = int(names[-1].rpartition("-b")[2]) if names else BLOCK_SIZE
    return {"mask_token_id": MASK_ID, "block_size": named, **config}


def core_config(config: Mapping[str, Any]) -> CoreConfig:
    """The core's sizes from config.json; see `Family.network`."""
    check_variant(config, {"attention_bias": False})
    return CoreConfig(
        **read_sizes(config, theta=1e6),
        rope_fp32=False,
        norm_weight_fp32=True,
        qk_norm=True,
        block_size=read_number(config, "block_size", BLOCK_SIZE),
    )


network = core_alone(core_config)


def layouts(inputs: LayoutInputs) -> dict[str, Layout]:
    """Text alone; see `Family.layouts`."""
    config = complete_config(inputs.network.public_config, Path())
    ids = dream.read_ids({"pad_token_id": TOKEN_IDS["<|endoftext|>"], **config}, inputs.tokenizer)
    alignment = inputs.options.block_alignment or config.get("block_alignment") or "left"
    text, size = llada.text_layout(inputs, ids), config["block_size"]
    return {"text": replace(text, block_size=size, block_alignment=alignment)}
