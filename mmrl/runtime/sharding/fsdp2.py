"""Sharding by FSDP2: every process holds a part of each weight, gradient and optimiser moment.

An accelerate configuration with `fsdp_version: 2` asks for it; a block of the core is one unit,
whole on a device only while it computes. torch's `fully_shard` is called here rather than by
`accelerator.prepare`, which shards nothing on the CPU and allows no second, frozen model.

Gradients are reduced after every micro-batch: what accelerate would keep until the last one are
gradients of the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import Optimizer

from mmrl.config import ConfigError
from mmrl.runtime.sharding.pace import keep_pace
from mmrl.runtime.sharding.sharding import Sharding
from models.network.core import Block

if TYPE_CHECKING:
    from models import Policy


class FSDP2(Sharding):
    """Processes share one copy of the model, by `fully_shard`."""

    shards = True

    def shard(self, model: nn.Module) -> None:
        """Shard every block, and the model.

        Raises:
            ConfigError: a model without a block of the core, or with weights of 4 bits.
        """
        blocks = [module for module in model.modules() if isinstance(module, Block)]
        if not blocks:
            raise ConfigError(
                f"distributed_type is FSDP in the accelerate configuration and"
                f" {type(model).__name__} has no block of the masked-token core to shard. Launch it"
                " with --config_file configs/accelerate/multi_gpu.yaml."
            )
        if not all(parameter.is_floating_point() for parameter in model.parameters()):
            raise ConfigError(
                "quantization_config is given and distributed_type is FSDP in the accelerate"
                " configuration: weights of 4 bits are not sharded. Launch it with --config_file"
                " configs/accelerate/multi_gpu.yaml."
            )
        device, processes = self.accelerator.device.type, self.accelerator.num_processes
        mesh = init_device_mesh(device, (processes,))
        for unit in [*blocks, model]:
            # also the outermost unit, whose weights a forward without backward would leave gathered
            # and which would then miss the next optimiser step
            fully_shard(unit, mesh=mesh, reshard_after_forward=True)

    def shard_policy(self, policy: Policy) -> None:
        """`shard` of a policy's model, whose sampling then keeps pace."""
        self.shard(policy.model)
        policy.keep_pace = partial(keep_pace, policy.model)

    def prepare(
        self, model: nn.Module, optimizers: Sequence[Optimizer]
    ) -> tuple[nn.Module, list[Any]]:
        """The model as `shard` left it, and its optimisers."""
        return model, [self.accelerator.prepare_optimizer(optimizer) for optimizer in optimizers]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as `shard` left it."""
        return model

    @contextmanager
    def accumulate(self, models: Sequence[nn.Module], last: bool) -> Iterator[None]:
        """Nothing to prepare: gradients are reduced after every micro-batch."""
        yield
