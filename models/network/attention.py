"""Bidirectional attention: rotary angles, norm, kernels, masks, queries at chosen positions only.

A row without padding attends to all of itself. Where few positions of the last block are wanted,
queries are computed for those only; keys and values always come from the whole row or a cache.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.models.network.core_config import CoreConfig
from mmrl.models.network.kv_cache import KVCache, TokenCache
from mmrl.models.network.pattern import BlockPattern, count_blocks


def rope_table(
    length: int, head_dim: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, each [length, head_dim] float32; the sine of the lower
    half is negated. No buffers of the model, so that casting it never rounds the frequencies."""
    # tables of a few lengths serve all passes
    cos, sin = _long_rope_table(1 << max(0, length - 1).bit_length(), head_dim, theta, device)
    return cos[:length], sin[:length]


@functools.lru_cache(maxsize=16)
def _long_rope_table(
    length: int, head_dim: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    positions = torch.arange(length, device=device, dtype=torch.float32)
    angles = torch.outer(positions, 1.0 / theta**exponents)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def angles_at(table: Tensor, index: Tensor) -> Tensor:
    """Entries `index` [B, n] of a table [L, head_dim], or of one [B, 1, L, head_dim] per row, as
    [B, 1, n, head_dim]."""
    return (table[index] if table.dim() == 2 else gather(table[:, 0], index)).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, fp32: bool) -> Tensor:
    """Rotate [B, H, n, head_dim] by the half-split rotary embedding of `rope_table`, in float32 at
    least where `fp32` (LLaDA, MMaDA), else in the dtype of x (LLaDA-V, Dream, SDAR)."""
    dtype = x.dtype
    if not fp32 or dtype == torch.float64:
        cos, sin = cos.to(dtype), sin.to(dtype)
    elif x.requires_grad:
        x = x.float()  # so that its gradient is rounded once
    # otherwise factors in float32 widen the products, and x need not be converted
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin).to(dtype)


def eager_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Matrix products, [B, H, n, d] x [B, H, L, d] -> [B, H, n, d]; a mask is bool or added."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1).to(v.dtype) @ v


def auto_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention by the kernel that `choose_attention` names."""
    kernel, _ = choose_attention("auto", q.device.type, q.dtype)
    return ATTENTION[kernel](q, k, v, mask)


ATTENTION: dict[str, Callable[..., Tensor]] = {
    "auto": auto_attention,
    "sdpa": F.scaled_dot_product_attention,
    "eager": eager_attention,
}


def attend(
    kernel: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> Tensor:
    """Attention of H heads [B, H, n, d] to keys and values of G heads [B, G, L, d] -> [B, n, H d].
    The H / G heads that share keys become further queries of one head, so that keys and values of a
    cache are never copied; a mask that differs between queries is repeated instead."""
    groups, (rows, heads, n, width) = k.shape[1], q.shape
    if groups < heads:
        q = q.reshape(rows, groups, -1, width)
        if mask is not None and mask.shape[1] > 1:
            mask = mask.expand(-1, -1, n, -1).reshape(len(mask), groups, q.shape[2], -1)
        elif mask is not None and mask.shape[2] > 1:
            mask = mask.repeat(1, 1, heads // groups, 1)
    out = kernel(q, k, v, mask)
    return out.unflatten(2, (-1, n)).permute(0, 3, 1, 2, 4).flatten(2)


def choose_attention(wish: str, device: str, dtype: torch.dtype) -> tuple[str, str]:
    """The attention kernel, `sdpa` or `eager`, and the reason; a wish other than `auto` is taken.

    Of 32 rows of 90 positions with 4 heads of 32 on one core of an AVX-512 Xeon, forward and
    backward take 15 ms in float32 fused and 21 ms from matrix products; in bfloat16 73 and 25 ms.
    """
    if wish != "auto":
        return wish, "as set"
    if device == "cpu" and dtype == torch.bfloat16:
        return "eager", "fused attention goes backward several times slower in bfloat16 on a CPU"
    return "sdpa", f"fused attention is the fastest in {str(dtype)[6:]} on {device}"


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


class Attention(nn.Module):
    """Bidirectional attention with grouped key/value heads."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        self.config = config
        self.implementation = "sdpa"
        width, bias = config.hidden_size, config.qkv_bias
        queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
        self.q = nn.Linear(width, queries, bias=bias)
        self.k = nn.Linear(width, keys, bias=bias)
        self.v = nn.Linear(width, keys, bias=bias)
        self.o = nn.Linear(queries, width, bias=False)
        norm = (config.head_dim, config.norm_eps, config.norm_weight_fp32)
        self.q_norm = RMSNorm(*norm) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(*norm) if config.qk_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        mask: Tensor | None,
        index: Tensor | None,
        stored: tuple[KVCache | TokenCache, int] | None = None,
    ) -> Tensor:
        """x [B, L, D] -> [B, n, D]: queries at `index` [B, n] only, or everywhere when None;
        `stored`: a cache and the layer's number in it, when x is only a part of the row."""
        cos, sin = rope
        queries, q_cos, q_sin = x, cos, sin
        if index is not None:
            queries = gather(x, index)
            q_cos, q_sin = angles_at(cos, index), angles_at(sin, index)
        q = self.q_norm(self._heads(self.q(queries)))
        k, v = self.k_norm(self._heads(self.k(x))), self._heads(self.v(x))
        q = rotate(q, q_cos, q_sin, self.config.rope_fp32)
        k = rotate(k, cos, sin, self.config.rope_fp32)
        if stored is not None:
            cache, layer = stored
            k, v = cache.update(layer, k, v)
        return self.o(attend(ATTENTION[self.implementation], q, k, v, mask))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


def find_mask(
    attention_mask: Tensor | None,
    x: Tensor,
    span: tuple[int, int, int],
    block_size: int | None,
    blocks: Tensor | None,
    copies: Tensor | None,
) -> Tensor | BlockPattern | None:
    """What the queries of a forward pass over x [B, n, D] may attend to: a [B, L] mask hides
    padding, a 4-D bool mask is all there is. `span`: first and last column of the queries, and the
    number L of keys; `block_size`, `blocks` and `copies`: of attention that is causal between
    blocks."""
    if attention_mask is not None and attention_mask.dim() == 4:
        # finite, so that a query that may attend to nothing gives numbers rather than NaN
        bias = torch.zeros_like(attention_mask, dtype=x.dtype)
        return bias.masked_fill(~attention_mask, torch.finfo(x.dtype).min)
    attend = None if attention_mask is None else attention_mask.bool()
    if block_size is None:
        return None if attend is None else attend[:, None, None, :]
    start, stop, seen = span
    if blocks is None:
        known = x.new_ones(x.shape[0], seen, dtype=torch.bool) if attend is None else attend
        blocks = count_blocks(known, block_size)
    pattern = BlockPattern(blocks, copies, attend)
    if (start, stop) == (0, seen):
        return pattern
    return pattern.at(torch.arange(start, stop, device=x.device).expand(x.shape[0], -1))


def kernel_mask(mask: Tensor | BlockPattern | None, index: Tensor | None = None) -> Tensor | None:
    """A mask as kernels take it, for the queries `index` [B, n] or all of them."""
    if not isinstance(mask, BlockPattern):
        if index is None or mask is None or mask.shape[2] == 1:
            return mask
        rows = index[:, None, :, None].expand(-1, mask.shape[1], -1, mask.shape[3])
        return mask.expand(index.shape[0], -1, -1, -1).gather(2, rows)
    return (mask if index is None else mask.at(index)).dense()


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Rows `index` [B, n] of x [B, L, D] -> [B, n, D]."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
