"""What a surrogate is formed of, and what it forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Comparison(NamedTuple):
    """What is compared: `log_ratio`, `new` and `old` values and `counts` [K, B, L], 0 where they do
    not count; `advantages`, broadcast to them; `epsilon`, the lower and the upper range."""

    log_ratio: Tensor
    new: Tensor
    old: Tensor
    counts: Tensor
    advantages: Tensor
    epsilon: tuple[float, float]


class Terms(NamedTuple):
    """`values` [K, B, L] to maximise, and where a ratio is clipped from `below` and `above`."""

    values: Tensor
    below: Tensor
    above: Tensor
