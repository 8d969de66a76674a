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
        check(self.r >= 1, "model.lora.r", self.r, "at least 1")
        for role in self.target_modules:
            check_choice("model.lora.target_modules", role, ROLES)
