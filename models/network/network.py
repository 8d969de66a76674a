"""What mmrl asks of the network of a policy, whatever is inside it.

`MaskedTokenModel` is such a network, and one of another library becomes one by a subclass that
holds it. What a subclass does not override it lacks: settings that need a cache, roles of layers or
`blocks` are refused without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import noop_context_fn


class MaskedLMOutput(NamedTuple):
    """`logits`: see `Network.forward`."""

    logits: Any


class Network(nn.Module, ABC):
    """A network that predicts the masked tokens of rows.

    A subclass registers two modules: `head`, which computes logits from `hidden_states`; and
    `vision`, which encodes images of prompts, see `mmrl.models.network.vision`, or None.

    Attributes:
        public_config: `config.json` of the checkpoint; says its family.
        source: where the weights are from, a `mmrl.models.public_code.Source`.
        stored: `StoredWeights` of a network on the meta device; None once they are read.
        gradient_checkpointing: whether blocks are computed again in the backward pass.
        recompute: contexts of such a block, `context_fn` of `torch.utils.checkpoint`.
        attn_implementation: the attention kernel that is set.
        can_cache, can_refresh: whether the network has `new_cache`, and `new_token_cache`.
        can_reduce: whether `forward` takes `reduce`; without it all logits exist at once.
        layer_roles: role of a layer that may have an adapter -> ends of the names of such layers.
    """

    can_cache: ClassVar[bool] = False
    can_refresh: bool = False
    can_reduce: ClassVar[bool] = False
    layer_roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    head: Any
    vision: nn.Module | None

    def __init__(self) -> None:
        super().__init__()
        self.public_config: dict[str, Any] = {}
        self.source: Any = None
        self.stored: Any = None
        self.gradient_checkpointing = False
        self.recompute: Callable[[], Any] = noop_context_fn
        self.attn_implementation = "sdpa"
        self.computes_on: torch.device | None = None

    @abstractmethod
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        **optional: Any,
    ) -> MaskedLMOutput:
        """Logits of every position, or of the requested ones. The result for a row must not depend
        on the other rows.

        Args:
            input_ids: [B, L] int64, rows of a canvas.
            attention_mask: [B, L] with 0 on padding; None where no row has any.
            positions: [B, L] bool, where logits are wanted.
            columns: half-open range of token ids whose logits are wanted.
            **optional: `cache`, from `new_cache`; `features` and `feature_at`, embeddings of images
                that replace tokens; `blocks`, `copies` and `position_ids`, where a canvas has
                blocks; `reduce(hidden, head)`, called with what `hidden_states` returns and an
                `OutputHead` where logits would be too large, while weights that are sharded are
                whole. Given only where a setting, a prompt or a layout needs them.

        Returns:
            logits [B, L, C], or [N, C] in row-major order of the True entries of `positions`, or
            what `reduce` returns.
        """

    @abstractmethod
    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        **optional: Any,
    ) -> Tensor:
        """What logits are computed from, [B, L, D], or [N, D] at `positions`; arguments as in
        `forward`."""

    @abstractmethod
    def set_attention(self, implementation: str) -> None:
        """Choose the attention kernel, one of `mmrl.models.network.attention.ATTENTION`. Raises
        ValueError: an unknown name."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D of `hidden_states`."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids that tokens of a text may have."""

    @abstractmethod
    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Bytes that a row of `length` tokens keeps for the backward pass, and those at work at a
        time beside them, where a number has `size` bytes; a forward pass without gradient needs at
        most the latter, without `recompute`."""

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        """Load what a network needs of a folder beside its own tensors, as a text encoder."""

    def count_parts(self) -> int:
        """Parameters of what `load_parts` loads."""
        return 0

    def new_cache(self, length: int | None = None) -> Any:
        """An empty `KVCache` of rows of `length` tokens."""
        raise NotImplementedError(f"{type(self).__name__} has no cache")

    def new_token_cache(self, length: int) -> Any:
        """An empty `TokenCache` for rows of `length` tokens."""
        raise NotImplementedError(f"{type(self).__name__} has no cache of tokens")

    def count_cached(self, length: int) -> int:
        """Values in a cache of a row of `length` tokens."""
        return 0

    @property
    def device(self) -> torch.device:
        """Where the network computes: where its weights are, or will be, unless offloaded."""
        if self.stored is not None:
            return self.stored.device
        return self.computes_on or next(self.parameters()).device

    @property
    def unread(self) -> set[str]:
        """Parameters that a checkpoint holds and no forward pass reads; they have no gradient."""
        return set()

    @property
    def tied(self) -> dict[str, str]:
        """Name of a tensor that a checkpoint lacks -> name of the one that it is."""
        return {}

    @contextmanager
    def attention(self, implementation: str) -> Iterator[None]:
        """Another attention kernel within the context; see `set_attention`."""
        before = self.attn_implementation
        self.set_attention(implementation)
        try:
            yield
        finally:
            self.set_attention(before)
