"""Parameters of ZeRO-3: each process holds a slice of the elements of every tensor.

DeepSpeed divides tensors that a process has whole. The weights of a checkpoint are therefore never
such tensors here: a parameter has the attributes that DeepSpeed gives to divided ones before a
process reads its slice from the files.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from mmrl.models.weights import StoredWeights
from mmrl.runtime.sharding.shard_loading import replace_unread


def divide_parameters(model: nn.Module, settings: Mapping[str, Any]) -> None:
    """Leave this process its slice of every parameter; all processes call this.

    Args:
        model: weights that are not read yet are read; of others, the first process's are taken.
        settings: of DeepSpeed.
    """
    from deepspeed.runtime.zero.partition_parameters import Init

    # with a module, DeepSpeed also replaces the linear function by one that keeps no gathered
    # weights for the backward pass
    divider = Init(module=nn.Module(), config_dict_or_path=dict(settings))
    replace_unread(model, partial(_read_slice, divider))
    divider._convert_to_zero_parameters(list(model.parameters()))


def _read_slice(
    divider: Any, stored: StoredWeights, name: str, parameter: nn.Parameter
) -> nn.Parameter:
    """A divided parameter, with the attributes that DeepSpeed's `_partition_param` sets."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.zero.partition_parameters import PartitionedParamStatus

    one = torch.empty(1, dtype=parameter.dtype, device=divider.local_device)
    divided: Any = nn.Parameter(one.expand(parameter.shape), parameter.requires_grad)
    divider._convert_to_deepspeed_param(divided)
    divided.ds_numel_aligned = divided.aligned_size()
    size = divided.ds_numel_aligned // divided.ds_zero_partition_world_size
    start = divided.ds_zero_partition_rank * size
    part: Any = torch.zeros(size, dtype=parameter.dtype, device=divider.remote_device)
    if divider.pin_memory:
        device: Any = get_accelerator()
        part = device.pin_memory(part)
    stored.copy_elements(name, parameter.shape, start, part[: max(0, parameter.numel() - start)])
    part.ds_numel, part.final_location = size, None
    part.status = PartitionedParamStatus.AVAILABLE
    divided.ds_tensor = part
    divided.partition()  # drops what it has beside its part
    return divided
