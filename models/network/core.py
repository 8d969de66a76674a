"""The masked-token transformer: a bidirectional pre-norm llama block, nothing modality-specific.

LLaDA, MMaDA, the language model of LLaDA-V, Lumina-DiMOO, Dream and SDAR are this block with other
values of the fields of `CoreConfig`; their checkpoints differ in names only. There is no timestep
input and no causal mask; SDAR's attention is causal between blocks, see `BlockPattern`.

    x = x + Wo softmax(rope(q) rope(k)^T / sqrt(d)) v        q, k, v from rms(x)
    x = x + Wdown(silu(Wgate h) * (Wup h))                   h = rms(x)

Logits are computed only at the requested positions and columns of the vocabulary; queries and MLP
of the last block are skipped everywhere else.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from mmrl.generation.tokens.positions import Positions
from mmrl.models.network.attention import (
    Attention,
    RMSNorm,
    angles_at,
    find_mask,
    gather,
    kernel_mask,
    rope_table,
)
from mmrl.models.network.core_config import ROLES, CoreConfig
from mmrl.models.network.kv_cache import KVCache, TokenCache
from mmrl.models.network.token_network import TokenNetwork


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.mlp_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.mlp_size, bias=False)
        self.down = nn.Linear(config.mlp_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate(x), self.up(x)
        if torch.compiler.is_compiling():
            return self.down(F.silu(gate) * up)
        if gate.requires_grad or up.requires_grad:
            return self.down(_GatedProduct.apply(gate, up))
        return self.down(F.silu(gate, inplace=True).mul_(up))


class _GatedProduct(torch.autograd.Function):
    """silu(gate) * up that keeps its inputs for the backward pass and not silu(gate), a sixth of
    what a block keeps; the gradients are the same bit for bit."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gate, up = ctx.saved_tensors
        of_up = F.silu(gate).mul_(gradient) if ctx.needs_input_grad[1] else None
        return torch.ops.aten.silu_backward(gradient * up, gate), of_up


class Block(nn.Module):
    """Attention and MLP, each with a norm before it and a residual around it."""

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        norm = (config.hidden_size, config.norm_eps, config.norm_weight_fp32)
        self.attn_norm, self.attn = RMSNorm(*norm), Attention(config)
        self.mlp_norm, self.mlp = RMSNorm(*norm), MLP(config)

    def forward(
        self,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        mask: Tensor | None,
        index: Tensor | None = None,
        stored: tuple[KVCache | TokenCache, int] | None = None,
    ) -> Tensor:
        attended = self.attn(self.attn_norm(x), rope, mask, index, stored)
        x = add(attended, x if index is None else gather(x, index))
        return add(self.mlp(self.mlp_norm(x)), x)


def add(new: Tensor, x: Tensor) -> Tensor:
    """x + new, in the memory of `new` where nothing goes backward: fresh memory costs more."""
    fresh = torch.is_grad_enabled() or new.dtype != x.dtype  # autocast adds in the wider of them
    return x + new if fresh else new.add_(x)


class MaskedTokenModel(TokenNetwork):
    """The network: embedding, blocks, final norm, head."""

    can_cache = True
    layer_roles = {role: (name,) for role, name in ROLES.items()}

    def __init__(self, config: CoreConfig) -> None:
        super().__init__()
        self.core, self.width, self.vocab_size = config, config.hidden_size, config.vocab_size
        self.shifts, self.wide_logits = config.shift_logits, config.logits_fp32
        self.block_size = config.block_size
        self.can_refresh = not config.shift_logits and config.block_size is None
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, config.norm_weight_fp32)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tied_head:
            self.head.weight = self.embed.weight
            self.tied = {"head.weight": "embed.weight"}
        self.register_module("vision", None)

    def set_attention(self, implementation: str) -> None:
        super().set_attention(implementation)
        for module in self.modules():
            if isinstance(module, Attention):
                module.implementation = implementation

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        images: Tensor | None = None,
        shown: Any = (),
        **inputs: Any,
    ) -> Any:
        """See `TokenNetwork.forward`, and `hidden_states` for the inputs. `images` and `shown` are
        images to encode, see `mmrl.models.network.vision`; their embeddings are the `features` of
        this pass, or without ids what is returned."""
        if images is not None and self.vision is not None:
            seen = self.vision(images, shown, self.gradient_checkpointing)
            if input_ids is None:
                return seen
            inputs["features"] = seen.rows
        return super().forward(input_ids, attention_mask, **inputs)  # type: ignore[arg-type]

    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: KVCache | TokenCache | None = None,
        position_ids: Tensor | None = None,
        features: Tensor | None = None,
        feature_at: Tensor | None = None,
        blocks: Tensor | None = None,
        copies: Tensor | None = None,
    ) -> Tensor:
        """See `TokenNetwork.hidden_states`.

        Args:
            attention_mask: may also be a 4-D mask broadcastable to [B, H, L, L], True where a query
                may attend. Padding queries of a 2-D mask attend to the same keys as the others.
            cache: without gradient. Then the input and `positions` are the columns `cache.span` of
                the rows.
            position_ids: [B, L] int64 below L, or below the length of the cache, the position of
                each token in its text; None counts from the left end of the row.
            features: [N, D] embeddings that replace tokens, shared by all rows.
            feature_at: [B, L] int64, which of them replaces the token at a position, -1 for none.
            blocks: [B, L] int64 (with `cache`: of the columns seen), the block of each position,
                for a network whose attention is causal between blocks; None counts blocks from the
                first token that is no padding. A 4-D mask is the whole pattern, without them.
            copies: [B, L] int64, see `mmrl.models.network.pattern`; None where all are clean.
        """
        x = self.embed(input_ids)
        if features is not None and feature_at is not None:
            given = F.embedding(feature_at.clamp(min=0), features.to(x.dtype))
            x = torch.where((feature_at >= 0)[..., None], given, x)
        elif self.vision is not None and torch.is_grad_enabled():
            x = x + zero_gradients(self.vision)
        length = x.shape[1]
        span = (0, length, length) if cache is None else cache.span
        start, stop, _ = span
        mask = find_mask(attention_mask, x, span, self.block_size, blocks, copies)
        everywhere = kernel_mask(mask)
        longest = stop if cache is None else max(stop, cache.length or 0)
        table = rope_table(longest, self.core.head_dim, self.core.rope_theta, x.device)
        rope = table[0][start:stop], table[1][start:stop]
        if position_ids is not None:
            rope = angles_at(table[0], position_ids), angles_at(table[1], position_ids)
        index, chosen = None, None
        if positions is not None:
            found = Positions.find(positions)
            index, chosen = found.in_columns(max(1, *found.numbers))
        if self.shifts:
            before = find_predecessors(x, position_ids, None if start else attention_mask)
            index = before if index is None else before.gather(1, index)
        for i, block in enumerate(self.blocks):
            last = index if i == len(self.blocks) - 1 else None
            rows = everywhere if last is None else kernel_mask(mask, last)
            x = self._run(block, x, rope, rows, last, None if cache is None else (cache, i))
        return self.norm(x if chosen is None else x.flatten(0, 1).index_select(0, chosen))

    def new_cache(self, length: int | None = None) -> KVCache:
        return KVCache(int(self.shifts), length)

    def new_token_cache(self, length: int) -> TokenCache:
        return TokenCache(length)

    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """A block keeps 4 vectors of the hidden width and 2 in float32, those of the norms, 4 of
        the width of its heads and 4 of its MLP for each token."""
        core, heads = self.core, self.core.num_heads * self.core.head_dim
        block = 4 * (core.hidden_size + heads + core.mlp_size) * size + 8 * core.hidden_size
        kept = core.num_layers * (core.hidden_size * size if recompute else block)
        working = (2 * core.hidden_size + 4 * core.mlp_size) * size
        return length * kept, length * (working + block * recompute)

    def count_images(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        return (0.0, 0.0) if self.vision is None else self.vision.count(length, recompute, size)

    def count_cached(self, length: int) -> int:
        return 2 * length * self.core.num_kv_heads * self.core.head_dim * self.core.num_layers

    def _run(self, block: nn.Module, *inputs: Any) -> Tensor:
        if self.gradient_checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)  # type: ignore[return-value]
        return block(*inputs)


def zero_gradients(vision: nn.Module) -> Tensor | float:
    """0 with a zero gradient for every trained weight of `vision`, for rows that show no image:
    processes wait for each other's gradients weight by weight."""
    empty = [p.flatten()[:0].sum() for p in vision.parameters() if p.requires_grad]
    return sum(empty) if empty else 0.0


def find_predecessors(x: Tensor, position_ids: Tensor | None, mask: Tensor | None) -> Tensor:
    """[B, L] int64: the position whose output predicts each one, in a network that shifts logits:
    the one before it, and itself for the first of a row, of a text of a packed row, and behind
    padding, of which a 4-D mask does not tell."""
    own = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    first = own == 0
    if position_ids is not None:
        first = position_ids == 0
    elif mask is not None and mask.ndim == 2:
        first = first | (mask.bool() & (mask.bool().cumsum(1) == 1))
    return torch.where(first, own, (own - 1).clamp(min=0))
