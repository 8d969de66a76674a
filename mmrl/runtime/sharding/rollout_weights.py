"""Whether rollouts gather sharded weights once, or a block whenever it computes.

A denoising step of a block is short, so gathering it from the other processes can take longer than
the step. Gathered once per phase, weights cost memory instead: that of one whole copy.
"""

import logging
from typing import Literal

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn

from mmrl.runtime.placement import device_memory

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
        memory: bytes of the smallest device; 0 where it is not known.
    """
    if wish != "auto":
        return wish
    return "whole" if weights <= SHARE * memory else "by_block"


def explain_rollout_weights(wish: RolloutWeights, weights: float, memory: float) -> str:
    """What `choose_rollout_weights` comes to, and why."""
    text = {"whole": "whole, once per rollout phase", "by_block": "by block, whenever one computes"}
    choice = text[choose_rollout_weights(wish, weights, memory)]
    sizes = f"{weights / 2**30:.2f} GiB of weights, {memory / 2**30:.2f} GiB of the device"
    return f"gathered {choice} (rollout_weights: {wish}; {sizes})"


def choose_together(
    wish: RolloutWeights, model: nn.Module, accelerator: Accelerator
) -> Literal["whole", "by_block"]:
    """`choose_rollout_weights` for the devices of this run, with a line in the log; every process
    calls this."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    memory = min(gather_object([device_memory(accelerator.device)]))
    logger.info("weights: %s", explain_rollout_weights(wish, weights, memory))
    return choose_rollout_weights(wish, weights, memory)
