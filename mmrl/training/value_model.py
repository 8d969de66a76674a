"""The value model of a run: a head on a copy of the policy.

All tasks with `algorithm.value` share one. It starts as the policy and is trained as the policy is:
all weights, some of them or an adapter; frozen weights are shared with the policy. It has no output
matrix, a separate backward pass, gradient norm and optimiser. The model that a run saves is the
policy alone; the trained part of the value model is in the state of the trainer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mmrl.models import Policy
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.training.trainable import shared_parameters, train_parts

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig


def build_value_model(config: RLConfig, policy: Policy, sharded: bool = False) -> ValueNetwork:
    """What predicts the return of the states of a rollout, of a policy that is neither adapted nor
    wrapped yet; with `sharded` it shares no weights with it."""
    network = policy.network
    backbone = copy_backbone(network, shared_parameters(network, config.model, sharded))
    backbone.set_attention(config.model.attn_implementation)
    dtype = next(network.parameters()).dtype
    if config.model.lora is not None:
        dtype = torch.promote_types(dtype, torch.float32)  # as the adapter has
    train_parts(backbone, config.model, config.seed)
    return ValueNetwork(backbone, ValueHead(network.width, policy.device, dtype)).eval()
