"""Sizes of the masked-token transformer."""

from dataclasses import dataclass

ROLES = {role: f"attn.{role}" for role in ("q", "k", "v", "o")}
ROLES |= {role: f"mlp.{role}" for role in ("gate", "up", "down")}
"""Role of a layer that may have an adapter -> its name in a block of the core."""


@dataclass(frozen=True)
class CoreConfig:
    """Sizes and the thirteen degrees of freedom in which the public backbones differ."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    vocab_size: int
    norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    rope_fp32: bool = True
    norm_weight_fp32: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = False
    logits_fp32: bool = False
    shift_logits: bool = False
    """Whether the output at a position predicts the next one, as in networks that began as
    autoregressive ones; the first position of a text predicts itself."""
    block_size: int | None = None
    """Positions of a block, where attention is causal between blocks and full inside them; None
    where all attend to all."""
