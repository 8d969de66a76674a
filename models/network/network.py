"""What the loop asks of the network of a policy, whatever is inside it and whatever it predicts.

What a subclass does not override it lacks: settings that need roles of layers or blocks are refused
without them. A network of tokens is a `TokenNetwork`, see `mmrl.models.network.token_network`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mmrl.models.network.attention import ATTENTION


class Network(nn.Module, ABC):
    """A network that a policy samples from and that is trained.

    Attributes:
        blocks: its repeated modules in the order in which they compute, each a unit that is
            sharded, quantised and computed again in the backward pass; none where it has none.
        public_config: `config.json` of the checkpoint; says its family.
        width: numbers of the states that logits are computed from; a `TokenNetwork` has it.
        vocab_size: number of ids that tokens of a text may have; 0 without tokens.
        unread: parameters that a checkpoint holds and no forward pass reads; they have no gradient.
        tied: name of a tensor that a checkpoint lacks -> name of the one that it is.
        part_options: what the user chose for what `load_parts` loads.
        source: where the weights are from, a `mmrl.models.public_code.Source`.
        stored: `StoredWeights` of a network on the meta device; None once they are read.
        gradient_checkpointing: whether blocks are computed again in the backward pass.
        attn_implementation: the attention kernel that is set.
        tower: the name of the vision tower, where there is one.
        can_shard: whether processes may share its weights: each then makes the same forward passes.
        can_cache, can_refresh: whether the network has `new_cache`, and `new_token_cache`.
        can_reduce: whether `forward` takes `reduce`; without it all logits exist at once.
        block_size: positions of a block of the row where attention is causal between blocks, None
            where it is not.
        layer_roles: role of a layer that may have an adapter -> ends of the names of such layers,
            which are in blocks.
    """

    layer_roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    tower: ClassVar[str] = "vision.tower"
    can_shard: bool = True
    can_cache: ClassVar[bool] = False
    can_refresh: bool = False
    can_reduce: ClassVar[bool] = False
    block_size: int | None = None
    width: int
    vocab_size: int = 0
    blocks: Any

    def __init__(self) -> None:
        super().__init__()
        self.blocks = ()
        self.public_config: dict[str, Any] = {}
        self.part_options: dict[str, Any] = {}
        self.tied: dict[str, str] = {}
        self.unread: set[str] = set()
        self.source: Any = None
        self.stored: Any = None
        self.gradient_checkpointing = False
        self.attn_implementation = "sdpa"
        self.computes_on: torch.device | None = None

    @abstractmethod
    def blank(self) -> Sequence[Mapping[str, Any]]:
        """Inputs by keyword of the smallest forward pass, on `device`, which a process makes while
        others still compute: one of each kind of passes that read the same weights. A pass is of
        the first kind whose keywords it has, or of the last."""

    def set_attention(self, implementation: str) -> None:
        """Choose the attention kernel, `sdpa`, `eager`, or `auto` by device and dtype; a subclass
        with a choice lets its layers know. Raises ValueError: an unknown name."""
        if implementation not in ATTENTION:
            raise ValueError(
                f"attn_implementation is {implementation!r}; allowed: {', '.join(ATTENTION)}"
            )
        self.attn_implementation = implementation

    @abstractmethod
    def count_activations(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Bytes that a row of `length` positions keeps for the backward pass, and those at work at
        a time beside them, where a number has `size` bytes; without gradient a pass needs at
        most the latter, without `recompute`."""

    def count_cached(self, length: int) -> int:
        """Values in a cache of a row of `length` tokens."""
        return 0

    def count_images(self, length: int, recompute: bool, size: int) -> tuple[float, float]:
        """Bytes that encoding images of `length` positions takes, see `count_activations`."""
        return 0.0, 0.0

    def load_parts(self, folder: Path, dtype: torch.dtype, device: torch.device | str) -> None:
        """Load what a network needs of a folder beside its own tensors, as a text encoder."""

    def count_parts(self) -> dict[str, int]:
        """Parameters of what `load_parts` loads: `text encoders`, `autoencoder`."""
        return {}

    def count_decoding(self, tokens: int, frames: int = 1, gradient: bool = False) -> float:
        """Bytes beside weights to decode an image of some tokens, or a video of some latent frames,
        and for the gradient of what is decoded; 0 where it is not counted."""
        return 0.0

    def move_parts(self, device: torch.device | str) -> None:
        """Move what `load_parts` loads and no forward pass reads, as far as it is read yet."""

    @property
    def sees(self) -> bool:
        """Whether there is a vision tower."""
        return False

    @property
    def device(self) -> torch.device:
        """Where the network computes: where its weights are, or will be, unless offloaded."""
        if self.stored is not None:
            return self.stored.device
        return self.computes_on or next(self.parameters()).device

    def draw_weights(self, generator: torch.Generator) -> None:
        """Draw new weights of deviation 0.02, residual outputs scaled by 1/sqrt(2 layers)."""
        residual = 0.02 / (2 * len(self.blocks)) ** 0.5
        outputs = tuple(
            f"{end}.weight" for role in ("o", "down") for end in self.layer_roles.get(role, ())
        )
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim >= 2:
                deviation = residual if name.endswith(outputs) else 0.02
                nn.init.normal_(parameter, std=deviation, generator=generator)

    def list_layers(self, roles: Iterable[str]) -> list[str]:
        """Names of the layers that have some of these roles, sorted."""
        ends = tuple(f".{end}" for role in roles for end in self.layer_roles[role])
        return sorted(name for name, _ in self.block_layers() if name.endswith(ends))

    def block_layers(self) -> Iterator[tuple[str, nn.Module]]:
        """What is inside the blocks, with its name in the network."""
        inside = {id(layer) for block in self.blocks for layer in block.modules()}
        return ((name, each) for name, each in self.named_modules() if id(each) in inside)

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """Blocks of another library compute again in the backward pass, where that is set; its own
        switch works in train mode alone, or fails (diffusers 0.42.0)."""
        blocks = self.blocks if self.gradient_checkpointing and torch.is_grad_enabled() else ()
        for block in blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        try:
            yield
        finally:
            for block in blocks:
                del block.forward

    @contextmanager
    def attention(self, implementation: str) -> Iterator[None]:
        """Another attention kernel within the context; see `set_attention`."""
        before = self.attn_implementation
        self.set_attention(implementation)
        try:
            yield
        finally:
            self.set_attention(before)


def find_networks(model: nn.Module) -> list[Network]:
    """The networks in a model, wrapped or not."""
    return [module for module in model.modules() if isinstance(module, Network)]
