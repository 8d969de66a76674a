"""Dropout of a LoRA adapter that depends on what a row holds, and on nothing beside it.

peft drops entries of an adapter's input with the global generator while a network is in train mode.
In d1 and TRL the policy of this update and the one that sampled are therefore scored with different
draws, so their ratio is not 1 where the weights are equal. Here an entry is dropped by a hash of
the names of a draw (run seed, step, inner iteration), of the tokens that its row reads, of its
layer and of its place in the row:

- new, old and reference log-probs of a row share the draw, so ratios are exactly 1 and the KL is 0
  where weights are equal; other passes hide other tokens, so it also drops other entries;
- micro-batches, processes, recomputed blocks and a resumed run drop the same entries. In supervised
  training this holds while rows are alike: a row of several examples is one row.

Dropout is on inside `adapter_dropout` alone: where log-probs of an update or a supervised loss are
computed on the policy. Sampling, evaluations, a separate value model and a reference without
adapter have none. Two equal rows of a step share their draws.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from mmrl.models.network.network import Network
from mmrl.randomness import stable_seed

_FACTOR = 0x01000193


class RowDraws:
    """What the layers of one adapter share: the seed of the draws, None where dropout is off; of
    the present forward pass the hashes of its rows [B] int32, the padding on their left [B] int32
    and their width. The last block reads positions that are gathered, without padding."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.layers = layers
        self.seed: int | None = None
        self.rows: Tensor | None = None
        self.starts: Tensor | None = None
        self.width = 0

    def read(self, _: nn.Module, __: Any, inputs: dict[str, Any]) -> None:
        """Hash the tokens of the rows, before a forward pass of the network."""
        ids, self.rows = inputs.get("input_ids"), None
        if self.seed is None or ids is None:
            return
        attend = inputs.get("attention_mask")
        seen = ids >= 0 if attend is None or attend.ndim != 2 else attend != 0
        starts = seen.int().argmax(1).int()
        self.starts, self.width = starts, ids.shape[1]
        places = torch.arange(self.width, device=ids.device, dtype=torch.int32)
        places = places - starts[:, None]  # of a row, however much padding a batch needs
        words = mix(mix(places * _FACTOR) + ids.int()) * seen
        self.rows = mix(words.sum(1).int() + self.seed)

    def recompute(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts of a block's forward pass, and of its recomputation with the same draws."""
        return nullcontext(), self.use(self.seed, self.rows, self.starts, self.width)

    @contextmanager
    def use(
        self, seed: int | None, rows: Any = None, starts: Any = None, width: int = 0
    ) -> Iterator[None]:
        """Let the layers drop entries by these draws inside the context."""
        before = self.seed, self.rows, self.starts, self.width
        trained = [layer.training for layer in self.layers]
        self.seed, self.rows, self.starts, self.width = seed, rows, starts, width
        try:
            for layer in self.layers:
                layer.training = seed is not None  # in eval mode DoRA ignores its dropout
            yield
        finally:
            self.seed, self.rows, self.starts, self.width = before
            for layer, mode in zip(self.layers, trained, strict=True):
                layer.training = mode


class RowDropout(nn.Module):
    """Drop entries with probability p by `RowDraws`, and scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float, number: int, draws: RowDraws) -> None:
        super().__init__()
        self.p, self.draws = p, draws
        self.key = stable_seed("layer", number) % 2**31

    def forward(self, x: Tensor) -> Tensor:
        """x [B, n, D] -> [B, n, D]."""
        rows = self.draws.rows
        if rows is None:
            return x
        places = torch.arange(x[0].numel(), device=x.device, dtype=torch.int32).view(x.shape[1:])
        first = mix(rows + self.key)
        if x.shape[1] == self.draws.width and self.draws.starts is not None:
            first = first - self.draws.starts * x.shape[2] * _FACTOR
        words = mix(first[:, None, None] + places * _FACTOR)
        keep = (words & 0x7FFFFFFF) >= int(self.p * 2**31)
        return x * keep * (1 / (1 - self.p))


def mix(words: Tensor) -> Tensor:
    """A hash of each int32, in which products wrap around."""
    for shift, factor in ((16, 0x7FEB352D), (15, -0x7B935975)):
        words = (words ^ ((words >> shift) & (2 ** (32 - shift) - 1))) * factor
    return words ^ ((words >> 16) & 0xFFFF)


def replace_dropout(network: Network, p: float) -> None:
    """Put `RowDropout` in the place of peft's dropout on every layer with an adapter."""
    layers: list[Any] = [module for module in network.modules() if isinstance(module, LoraLayer)]
    draws = RowDraws(layers)
    for number, layer in enumerate(layers):
        for name in layer.lora_dropout:
            layer.lora_dropout[name] = RowDropout(p, number, draws)
    network.register_forward_pre_hook(draws.read, with_kwargs=True)
    network.recompute = draws.recompute


def adapter_dropout(network: nn.Module, *names: int | str) -> AbstractContextManager[None]:
    """Let the adapter of a network drop entries inside the context, by draws of these names.

    Blocks that are recomputed find their draws also after it. Nothing happens to a network whose
    adapter has no dropout.
    """
    found = (module.draws for module in network.modules() if isinstance(module, RowDropout))
    draws = next(found, None)
    return nullcontext() if draws is None else draws.use(stable_seed(*names) % 2**31)
