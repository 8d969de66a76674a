"""What samplers, scoring and layouts ask of a network that predicts tokens of rows.

A network of another library becomes one by a subclass that holds it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrl.models.network.network import Network


class OutputHead(NamedTuple):
    """The output matrix, handed to what needs a few numbers of each position and not its logits.

    `weight` [C, D] and `bias` [C] of the requested columns, whole while a forward pass runs;
    `wide`: whether logits are at least float32."""

    weight: Tensor
    bias: Tensor | None = None
    wide: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [..., C] of hidden states [..., D]."""
        return self._widened(F.linear(x, self.weight, self.bias))

    def by_column(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Logits [C, n] of hidden states [n, D], column by column; into `out`, of their dtype.

        Where n is small, threads share this product along C; along n they have little to share.
        """
        if self.bias is None:
            return self._widened(torch.mm(self.weight, x.T, out=out))
        return self._widened(torch.addmm(self.bias[:, None], self.weight, x.T, out=out))

    def _widened(self, logits: Tensor) -> Tensor:
        return logits.to(torch.promote_types(logits.dtype, torch.float32)) if self.wide else logits

    def take(self, start: int, stop: int) -> OutputHead:
        """The head of some of the columns."""
        bias = None if self.bias is None else self.bias[start:stop]
        return OutputHead(self.weight[start:stop], bias, self.wide)

    def cast(self, x: Tensor) -> tuple[Tensor, OutputHead]:
        """Hidden states and head in the precision that autocast would compute them in, converted
        once for all parts."""
        kind = x.device.type
        if not torch.is_autocast_enabled(kind) or x.dtype == torch.float64:
            return x, self
        dtype = torch.get_autocast_dtype(kind)
        bias = None if self.bias is None else self.bias.to(dtype)
        return x.to(dtype), OutputHead(self.weight.to(dtype), bias, self.wide)


class LMOutput(NamedTuple):
    """`logits`: see `TokenNetwork.forward`."""

    logits: Any


class TokenNetwork(Network):
    """A network that predicts tokens of rows.

    A subclass registers two modules: `head`, which computes logits from `hidden_states`; and
    `vision`, which encodes images of prompts, see `mmrl.models.network.vision`, or None.

    Attributes:
        shifts: whether the output at a position predicts the next one inside the network, which
            still returns logits at the position that they predict.
        causal: whether attention is from left to right in the network itself.
        wide_logits: whether logits are at least float32.
    """

    shifts: bool = False
    wide_logits: bool = False
    causal: ClassVar[bool] = False
    can_reduce = True

    head: Any
    vision: Any

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        columns: tuple[int, int] | None = None,
        reduce: Callable[[Tensor, OutputHead], Any] | None = None,
        **optional: Any,
    ) -> LMOutput:
        """Logits of every position, [B, L, C], or of the requested ones, [N, C] in row-major order
        of the True entries of `positions`, of the half-open range `columns` of token ids; [B, C] of
        the column after the last one where a causal network has a cache. The result for a row must
        not depend on the other rows. The other arguments are those of `hidden_states`.

        `reduce` is called with what `hidden_states` returns and the head, where logits would be too
        large, while weights that are sharded are whole; what it returns takes their place."""
        x = self.hidden_states(input_ids, attention_mask, positions, **optional)
        head = OutputHead(self.head.weight.flatten(1), self.head.bias, self.wide_logits)
        head = head if columns is None else head.take(*columns)
        return LMOutput(head(x) if reduce is None else reduce(x, head))

    @abstractmethod
    def hidden_states(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        **optional: Any,
    ) -> Tensor:
        """What logits and values are computed from: [B, L, D] final hidden states of the rows of a
        canvas, [B, L] int64, or [N, D] at `positions` [B, L] bool, where logits are wanted.
        `attention_mask` [B, L] has 0 on padding, with `cache` of all columns that are seen; None
        where no row has any.

        Optional are `cache`, from `new_cache`; `features` and `feature_at`, embeddings of images
        that replace tokens; `blocks`, `copies` and `position_ids`, where a canvas has blocks. They
        are given only where a setting, a prompt or a layout needs them."""

    @property
    def image_encoder(self) -> Any:
        """The vision tower with what projects its states; None without."""
        return self.vision

    @property
    def sees(self) -> bool:
        return self.image_encoder is not None

    @property
    def learns_to_see(self) -> bool:
        """Whether a weight that encodes images is trained."""
        return self.sees and is_trained(self.image_encoder)

    def train_tower(self, trained: bool) -> None:
        """Train or freeze the vision tower of a network that has one."""
        self.vision.train_tower(trained)

    def new_cache(self, length: int | None = None) -> Any:
        """An empty `KVCache` of rows of `length` tokens."""
        raise NotImplementedError(f"{type(self).__name__} has no cache")

    def new_token_cache(self, length: int) -> Any:
        """An empty `TokenCache` for rows of `length` tokens."""
        raise NotImplementedError(f"{type(self).__name__} has no cache of tokens")

    def blank(self) -> Sequence[Mapping[str, Any]]:
        """See `Network.blank`: of images where there is a tower, and of tokens alone."""
        tokens = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        images = [] if self.vision is None else [self.vision.blank(self.device)]
        return [*images, {"input_ids": tokens}]


def is_trained(module: nn.Module) -> bool:
    """Whether any weight of a module is."""
    return any(weight.requires_grad for weight in module.parameters())


def find_encoders(model: nn.Module) -> list[nn.Module]:
    """What encodes images in the networks of a model, wrapped or not."""
    networks = (module for module in model.modules() if isinstance(module, TokenNetwork))
    return [network.image_encoder for network in networks if network.sees]
