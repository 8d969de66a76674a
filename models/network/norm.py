"""The norm of every block."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm, in float32 at least, cast back before the weight unless
    `weight_fp32`."""

    def __init__(self, size: int, eps: float, weight_fp32: bool = False) -> None:
        super().__init__(size, eps)
        self.weight_fp32 = weight_fp32

    def forward(self, x: Tensor) -> Tensor:
        weight, wide = self.weight, torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            if x.dtype == weight.dtype and (self.weight_fp32 or x.dtype == wide):
                return F.rms_norm(x, weight.shape, weight, self.eps)  # one kernel on a GPU
            if self.weight_fp32:
                y = F.rms_norm(x.to(wide), weight.shape, None, self.eps)
                return (y * weight.to(wide)).to(x.dtype)
            return F.rms_norm(x, weight.shape, None, self.eps) * weight.to(x.dtype)
