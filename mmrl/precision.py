"""Mixed precision of one network, without the process-wide setting of `Accelerator`."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import convert_to_fp32
from torch import nn


def autocast_forward(module: nn.Module, device: torch.device) -> None:
    """Let the forward pass of a module run under bfloat16 autocast and return float32.

    Losses stay outside and therefore in float32.
    """
    forward = module.forward

    def in_bfloat16(*arguments: Any, **named: Any) -> Any:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            outputs = forward(*arguments, **named)
        return convert_to_fp32(outputs)

    module.forward = in_bfloat16  # type: ignore[method-assign]
