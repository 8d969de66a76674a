"""peft's LoRA layer with its product added in place: y = W x, y += (alpha / r) B (A x).

peft allocates four buffers of the size of the output for every layer, this one a single buffer. On
a long row they are most of the transient memory of an update, and on a CPU, whose allocator cannot
return them between those kept for the backward pass, they add up over the layers.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor


class InPlaceLora(Linear):
    """Drop-in for peft's layer, which handles everything but the plain case."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """x [..., in] -> [..., out]."""
        if args or kwargs or not self._is_plain(x):
            return super().forward(x, *args, **kwargs)
        [name] = self.active_adapters
        # flat, because adding in place to a view would copy its gradient
        rows = x.reshape(-1, x.shape[-1])
        result = self.base_layer(rows)
        kept = self.lora_dropout[name](x).reshape(rows.shape)
        low = self.lora_A[name](kept).to(result.dtype)
        weight = self.lora_B[name].weight.to(result.dtype)
        result.addmm_(low, weight.T, alpha=self.scaling[name])
        return result.view(*x.shape[:-1], -1)

    def _is_plain(self, x: Tensor) -> bool:
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return False
        [name] = self.active_adapters
        if name not in self.lora_A or name in self.lora_variant:
            return False
        weight = self.lora_A[name].weight
        return x.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type)
