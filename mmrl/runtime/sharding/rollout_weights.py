"""Whether rollouts gather sharded weights once, or a block whenever it computes.

A denoising step of a block is short, so gathering it from the other processes can take longer than
the step. Gathered once per phase, weights cost memory instead: that of one whole copy.
"""

import logging
import os
from typing import Literal

import psutil
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

logger = logging.getLogger(__name__)
RolloutWeights = Literal["whole", "by_block", "auto"]
SHARE = 0.5
"""Largest share of a device's memory that `auto` gives to whole weights: the rest is for shards,
caches and logits."""


def choose_rollout_weights(
    wish: RolloutWeights, weights: float, memory: float
) -> Literal["whole", "by_block"]:
    """The choice of `rollout_weights`.

    Args:
        wish: the setting.
        weights: bytes of all weights.
        memory: bytes of the smallest device.
    """
    if wish != "auto":
        return wish
    return "whole" if weights <= SHARE * memory else "by_block"


def explain_rollout_weights(wish: RolloutWeights, weights: float, memory: float | None) -> str:
    """What `choose_rollout_weights` comes to, and why.

    Args:
        wish: the setting.
        weights: bytes of all weights.
        memory: bytes of the smallest device; None where it is not known, which counts as too small.
    """
    choice = choose_rollout_weights(wish, weights, memory or 0.0)
    text = {"whole": "whole, once per rollout phase", "by_block": "by block, whenever one computes"}
    head = f"gathered {text[choice]} (rollout_weights: {wish}); all weights take {_write(weights)}"
    if wish != "auto":
        return head
    if memory is None:
        least = _write(weights / SHARE)
        return f"{head}; the device is not known here: whole where it has {least} or more"
    part = "at most" if choice == "whole" else "more than"
    return f"{head}, {part} half of the device's {_write(memory)}"


def _write(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def choose_together(
    wish: RolloutWeights, model: nn.Module, accelerator: Accelerator
) -> Literal["whole", "by_block"]:
    """`choose_rollout_weights` for the devices of this run, with a line in the log; every process
    calls this."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    memory = min(gather_object([device_memory(accelerator.device)]))
    logger.info("weights: %s", explain_rollout_weights(wish, weights, memory))
    return choose_rollout_weights(wish, weights, memory)


def device_memory(device: torch.device) -> int:
    """Bytes of memory of a device; on the CPU this process's share of the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
