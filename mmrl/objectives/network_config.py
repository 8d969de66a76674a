"""Sizes of a new network of the objectives `masked` and `text`."""

from dataclasses import dataclass

from models.network.core_config import CoreConfig


@dataclass(kw_only=True)
class NetworkConfig:
    """Sizes of a new network, by the names of LLaDA's config.json."""

    d_model: int = 192
    """Width."""
    n_layers: int = 6
    """Layers."""
    n_heads: int = 6
    """Attention heads."""
    mlp_hidden_size: int = 512
    """Width of the MLPs."""
    rope_theta: float = 500000.0
    """Base of the rotary embedding."""

    def core(self, rows: int) -> CoreConfig:
        """The sizes of the core with `rows` embedding rows."""
        return CoreConfig(
            hidden_size=self.d_model,
            num_layers=self.n_layers,
            num_heads=self.n_heads,
            num_kv_heads=self.n_heads,
            head_dim=self.d_model // self.n_heads,
            mlp_size=self.mlp_hidden_size,
            vocab_size=rows,
            rope_theta=self.rope_theta,
        )
