"""Sharding by FSDP2: processes hold parts of each weight, gradient and optimiser moment.

An accelerate configuration with `fsdp_version: 2` asks for it; a block of a network is one unit,
whole on a device only while it computes. With a `parallelism_config`, each group of
`dp_shard_size` processes (a node) shares a copy, and `dp_replicate_size` groups reduce gradients
(HSDP). With `fsdp_offload_params`, the parts are in host memory.

torch's `fully_shard` is called here rather than by `accelerator.prepare`, which shards nothing on
the CPU and allows no second, frozen model. Gradients are reduced after every micro-batch: what
accelerate would keep until the last one are gradients of the whole model.

A run in bfloat16 gathers the float32 weights of blocks in bfloat16, as autocast would convert them
for every product. What autocast leaves in float32 is gathered as it is: the weights of norms, and
everything outside the blocks. Gradients are summed over processes in float32.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.optim import Optimizer

from mmrl.runtime.placement import read_placement
from mmrl.runtime.sharding.loading import read_shards
from mmrl.runtime.sharding.sharding import Prepared, Sharding, find_blocks

HALF = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
"""Of blocks under autocast, whose inputs are float32."""


class FSDP2(Sharding):
    """Processes share one copy of the model, or one per node, by `fully_shard`. With `half` blocks
    gather their weights in bfloat16: not with compiled blocks, as norms are then separate units,
    which would split every block."""

    shards = gathers = True

    def __init__(self, accelerator: Accelerator, half: bool = False) -> None:
        super().__init__(accelerator)
        self.half = half

    def shard(self, model: nn.Module, trained: bool = True, whole: bool = False) -> None:
        """Shard every block, and the model; read the shards of one that is not loaded yet."""
        blocks = find_blocks(model)
        place, device = read_placement(), self.accelerator.device
        mesh = init_device_mesh(device.type, (place.world_size,))
        if place.replicas > 1:
            shape = place.replicas, place.shards
            mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
        offload = OffloadPolicy()
        if place.offload_weights:
            offload = CPUOffloadPolicy(pin_memory=device.type != "cpu")
            for module in model.modules():
                if hasattr(module, "computes_on"):
                    module.computes_on = device
        split = partial(
            fully_shard,
            mesh=mesh,
            # also the outermost unit, whose weights a forward without backward would leave gathered
            # and which would then miss the next optimiser step
            reshard_after_forward=True,
            offload_policy=offload,
            ignored_params={p for p in model.parameters() if whole and not p.requires_grad},
        )
        half = self.half and all(p.dtype != torch.float64 for p in model.parameters())
        for block in blocks:
            if half:
                # the norms that have weights, by the names that libraries give their classes
                named = (m for m in block.modules() if type(m).__name__.endswith("Norm"))
                split([norm for norm in named if any(True for _ in norm.parameters())])
            split(block, mp_policy=HALF if half else MixedPrecisionPolicy())
        split(model)
        read_shards(model, torch.device("cpu") if place.offload_weights else device)

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> Prepared:
        """The models as `shard` left them, and their optimisers."""
        return list(models), [self.accelerator.prepare_optimizer(each) for each in optimizers]

    @contextmanager
    def accumulate(self, models: Sequence[nn.Module], last: bool) -> Iterator[None]:
        """Nothing to prepare: gradients are reduced after every micro-batch."""
        yield

    @contextmanager
    def sample_whole(self, model: nn.Module, forwards_differ: bool) -> Iterator[None]:
        """Gather all weights once; calls inside need no other process."""
        units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        with torch.no_grad():
            for unit in units:
                unit.set_reshard_after_forward(False, recurse=False)
                unit.unshard()
        try:
            yield
        finally:
            for unit in units:
                unit.reshard()
                unit.set_reshard_after_forward(True, recurse=False)
