"""The norm of every block."""

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square norm, in float32 at least, cast back before the weight unless
    `weight_fp32`."""

    def __init__(self, size: int, eps: float, weight_fp32: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self.weight_fp32 = weight_fp32

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            y = x.to(torch.promote_types(x.dtype, torch.float32))
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
            if self.weight_fp32:
                return (y * self.weight.to(y.dtype)).to(x.dtype)
            return y.to(x.dtype) * self.weight.to(x.dtype)
