"""The value model of a run: a head on a copy of the policy.

All tasks with `algorithm.value` share one. It starts as the policy and is trained as the policy is:
all weights, some of them or an adapter; frozen weights are shared with the policy. It has no output
matrix, a separate backward pass and gradient norm, and a separate parameter group in the one
optimiser. The model that a run saves is the policy alone; a checkpoint holds the trained part of
the value model beside it, as safetensors in `value/`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mmrl.generation.tokens.canvas import TokenCanvas
from mmrl.generation.tokens.scoring.scoring import predict_values
from mmrl.models import Policy
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.models.weights import read_weights, write_weights
from mmrl.runtime.precision import autocast_forward, compile_blocks
from mmrl.runtime.sharding.sharding import Sharding
from mmrl.runtime.sharding.tensors import held_part
from mmrl.training.optimizers import build_optimizers
from mmrl.training.trainable import shared_parameters, train_parts
from mmrl.types import Passes

if TYPE_CHECKING:
    from mmrl.rl_config import RLConfig

FOLDER = "value"


class ValueModel:
    """Predicts the return of the states of a rollout.

    Attributes:
        trained: the copy with its head.
        network: the same, which `TrainedPolicy` wraps for several processes.
    """

    def __init__(self, config: RLConfig, policy: Policy, sharding: Sharding) -> None:
        assert config.value is not None
        self.sharding, network = sharding, policy.network
        self.rate = config.learning_rate * config.value.learning_rate_scale
        # nothing of the policy is adapted or wrapped yet
        shared = shared_parameters(network, config.model, sharding.gathers)
        backbone = copy_backbone(network, shared)
        backbone.set_attention(config.model.attn_implementation)
        dtype = next(network.parameters()).dtype
        if config.model.lora is not None:
            dtype = torch.promote_types(dtype, torch.float32)  # as the adapter has
        train_parts(backbone, config.model, config.seed)
        head = ValueHead(network.width, policy.device, dtype)
        self.trained = ValueNetwork(backbone, head).eval()
        if config.torch_compile:
            compile_blocks(self.trained)
        sharding.shard(self.trained)
        if config.bf16:
            autocast_forward(self.trained, sharding.accelerator.device)
        self.network: nn.Module = self.trained

    def __call__(self, canvas: TokenCanvas, passes: Passes) -> Tensor:
        """Values [K, B, L] of the states of the passes."""
        return predict_values(self.network, canvas, passes)

    def join(self, optimizer: Optimizer, config: RLConfig) -> None:
        """Put the trained parameters into separate groups with a separate learning rate."""
        settings = replace(config, learning_rate=self.rate)
        [own] = build_optimizers(self.trained, settings)
        for group in own.param_groups:
            optimizer.add_param_group({key: group[key] for key in ("params", "lr", "weight_decay")})

    def save(self, folder: Path, main: bool) -> None:
        """Write what is trained beside the policy; all who hold a part of it call this."""
        state = self.sharding.gather(self._tensors())
        if main:
            (folder / FOLDER).mkdir(exist_ok=True)
            write_weights(state, folder / FOLDER)

    def load(self, folder: Path) -> None:
        """Continue from what `save` wrote.

        Raises:
            FileNotFoundError, ValueError: there is nothing, or it is another value model's.
        """
        self.sharding.assign(self._tensors(), read_weights(folder / FOLDER))

    def _tensors(self) -> dict[str, Tensor]:
        return {n: held_part(p) for n, p in self.trained.named_parameters() if p.requires_grad}
