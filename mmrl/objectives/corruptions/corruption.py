"""What a corruption is: a function from a completion and random numbers to a view with weights.

Notation of the formulas: a completion y of n tokens after a prompt x, H the hidden positions,
CE_j(H) = -log p(y_j | x, y without H). The expected sum of weight times CE over a view is the
bound that the corruption states, in nats per completion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Generator, Tensor

EPS = 1e-3
"""Lowest masking rate, as in LLaDA (arXiv 2502.09992)."""


@dataclass
class Chance:
    """The uniform numbers in [0, 1) that decide a view; all of them are drawn, used or not.

    Attributes:
        choice: picks one of several blocks or slices.
        rates: [n], masking rates, one per block.
        tokens: [n], compared with the rate.
    """

    choice: float
    rates: Tensor
    tokens: Tensor

    def pick(self, count: int) -> int:
        """Pick an index below `count`, each with the same probability."""
        return min(int(self.choice * count), count - 1)

    def rate(self, count: int = 1, low: float | None = None, high: float = 1.0) -> Tensor:
        """The first `count` masking rates, in [low, high); without `low` from EPS on."""
        low = EPS if low is None else low
        return (high - low) * self.rates[:count] + low


def draw_chance(length: int, generator: Generator) -> Chance:
    """Draw the numbers for a completion of `length` tokens."""
    import torch

    numbers = torch.rand(2 * length + 1, generator=generator)
    return Chance(float(numbers[0]), numbers[1 : length + 1], numbers[length + 1 :])


@dataclass
class View:
    """The m columns after the prompt, made of the n tokens of a completion.

    A column attends to its prompt and to all columns of blocks up to its own. Where its block has
    copies, a copy sees the copies of its block instead of the originals, and nothing else sees
    copies.

    Attributes:
        index: [m] int64, which token of the completion the column holds.
        hidden: [m] bool, whether the network reads a mask token there.
        weight: [m] float32, of the column's cross-entropy; 0 is not scored.
        block: [m] int64.
        copy: [m] bool.
    """

    index: Tensor
    hidden: Tensor
    weight: Tensor
    block: Tensor
    copy: Tensor


def build_view(hidden: Tensor, weight: Tensor) -> View:
    """The completion with `hidden` [n] masked; every column attends to every other."""
    import torch

    zeros = torch.zeros_like(hidden, dtype=torch.long)
    return View(torch.arange(len(hidden)), hidden, weight.float(), zeros, zeros.bool())


class Corruption(NamedTuple):
    """A row of `CORRUPTIONS`.

    `corrupt(order, chance, config)` builds the view of a completion of n tokens: `order` [n] int64
    is the step that wrote each, `config` an instance of `Config`. `recorded`: it needs the recorded
    order. `continued`: untrained masks may follow the view, as in the canvas of a sampler.
    """

    corrupt: Callable[[Tensor, Chance, Any], View]
    Config: type[Any]
    recorded: bool = False
    continued: bool = True
