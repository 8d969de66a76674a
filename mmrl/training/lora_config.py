"""Settings of a LoRA adapter."""

from __future__ import annotations

from dataclasses import dataclass, field

from mmrl.config import check, check_choice

ROLES = {
    "q": "attn.q",
    "k": "attn.k",
    "v": "attn.v",
    "o": "attn.o",
    "gate": "mlp.gate",
    "up": "mlp.up",
    "down": "mlp.down",
}

MOST = 4096
"""Largest rank: the width of the public networks, at which it is none that is low."""


@dataclass(kw_only=True)
class LoraSettings:
    """Low-rank adapters; peft's names."""

    r: int = 16
    """Rank."""
    lora_alpha: int = 32
    """Scale: the update is alpha / r times the product."""
    target_modules: list[str] = field(default_factory=lambda: list(ROLES))
    """Layers by role: q, k, v, o, gate, up, down."""

    def __post_init__(self) -> None:
        check(1 <= self.r <= MOST, "model.lora.r", self.r, f"from 1 to {MOST}")
        for role in self.target_modules:
            check_choice("model.lora.target_modules", role, ROLES)
