"""Sizes of a new network of the objectives `masked` and `text`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class NetworkConfig:
    """Sizes of a new network, by the names of LLaDA's config.json."""

    d_model: int = 192
    """Width."""
    n_layers: int = 6
    """Layers."""
    n_heads: int = 6
    """Heads of attention."""
    mlp_hidden_size: int = 512
    """Width of the MLPs."""
    rope_theta: float = 500000.0
    """Base of the rotary embedding."""

    def public(self, rows: int, longest: int) -> dict[str, Any]:
        """The keys of config.json that follow from them.

        Args:
            rows: of the embedding.
            longest: tokens of a sequence.
        """
        return {
            "d_model": self.d_model,
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "n_kv_heads": self.n_heads,
            "mlp_ratio": 4,
            "mlp_hidden_size": self.mlp_hidden_size,
            "rope_theta": self.rope_theta,
            "max_sequence_length": longest,
            "vocab_size": rows,
            "embedding_size": rows,
        }
