"""The value model of a run: a head on a copy of the policy.

All tasks with `algorithm.value` share one. It starts as the policy and is trained as the policy is:
all weights, some of them or an adapter; frozen weights are shared with the policy. It has no output
matrix, a separate backward pass, gradient norm and optimiser. The model that a run saves is the
policy alone; the trained part of the value model is in the state of the trainer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.generation.tokens.scoring.scoring import predict_values
from mmrl.models import Policy
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.training.trainable import shared_parameters, train_parts
from mmrl.types import Passes

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig


class ValueModel:
    """Predicts the return of the states of a rollout.

    Attributes:
        settings: of the run, with the learning rate of this model.
        trained: the copy with its head.
        network: the same, which `TrainedPolicy` wraps for several processes.
    """

    def __init__(self, config: RLConfig, policy: Policy, sharded: bool = False) -> None:
        assert config.value is not None
        network, rate = policy.network, config.learning_rate * config.value.learning_rate_scale
        self.settings = replace(config, learning_rate=rate)
        # nothing of the policy is adapted or wrapped yet
        shared = shared_parameters(network, config.model, sharded)
        backbone = copy_backbone(network, shared)
        backbone.set_attention(config.model.attn_implementation)
        dtype = next(network.parameters()).dtype
        if config.model.lora is not None:
            dtype = torch.promote_types(dtype, torch.float32)  # as the adapter has
        train_parts(backbone, config.model, config.seed)
        head = ValueHead(network.width, policy.device, dtype)
        self.trained = ValueNetwork(backbone, head).eval()
        self.network: nn.Module = self.trained

    def __call__(self, canvas: TokenCanvas, passes: Passes) -> Tensor:
        """Values [K, B, L] of the states of the passes."""
        return predict_values(self.network, canvas, passes)
