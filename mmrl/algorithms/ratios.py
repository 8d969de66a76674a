"""Ratio levels: over what the importance ratio pi_new / pi_old is formed.

A level maps log-ratios [K, B, L] and the mask of those that count to log-ratios of the same shape,
each entry the log of the ratio that multiplies its advantage. Levels above the token take the mean
over tokens (the geometric mean of their ratios), with the gradient of that mean at every entry; an
entry that stands for several tokens (a bound of a whole response) is divided by their number. Its
further arguments are these `sizes`, broadcast to the entries, and the `blocks` [B, L].

    token      every value by itself
    step       the mean over a row's values in a pass: a recorded step or slice, with trace masks
    block      the mean over a row's values in a block of positions, over all passes
    sequence   the mean over all of a row's values (GSPO, arXiv 2507.18071)
    none       no ratio: exp(new - stop_gradient(new)), so the policy gradient without correction
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def token(new: Tensor, old: Tensor, counts: Tensor, *_: Tensor | None) -> Tensor:
    """new - old, entry by entry."""
    return (new - old) * counts


def step(
    new: Tensor, old: Tensor, counts: Tensor, sizes: Tensor | None = None, *_: Tensor | None
) -> Tensor:
    """The mean of new - old over each row's counted entries of a pass."""
    return _mean(new, old, counts, sizes, (-1,))


def sequence(
    new: Tensor, old: Tensor, counts: Tensor, sizes: Tensor | None = None, *_: Tensor | None
) -> Tensor:
    """The mean of new - old over each row's counted entries of all passes."""
    return _mean(new, old, counts, sizes, (0, -1))


def block(
    new: Tensor,
    old: Tensor,
    counts: Tensor,
    sizes: Tensor | None = None,
    blocks: Tensor | None = None,
) -> Tensor:
    """The mean of new - old over each row's counted entries in the same block."""
    assert blocks is not None, "block_size is checked with the configuration"
    place = blocks.clamp(min=0)
    empty = new.new_zeros(len(blocks), int(place.max()) + 1)
    total = empty.scatter_add(1, place, ((new - old) * counts).sum(0))
    number = empty.scatter_add(1, place, counts.sum(0).to(new.dtype)).clamp(min=1)
    return (total / number).gather(1, place).expand_as(new) * counts


def none(new: Tensor, old: Tensor, counts: Tensor, *_: Tensor | None) -> Tensor:
    """0 in value with the gradient of new: REINFORCE."""
    return (new - new.detach()) * counts


def _mean(
    new: Tensor, old: Tensor, counts: Tensor, sizes: Tensor | None, over: tuple[int, ...]
) -> Tensor:
    tokens = counts if sizes is None else counts * sizes
    number = tokens.sum(over, keepdim=True).clamp(min=1)
    mean = ((new - old) * counts).sum(over, keepdim=True) / number
    return mean.expand_as(new) * counts


RATIO_LEVELS: dict[str, Callable[..., Tensor]] = {
    "token": token,
    "step": step,
    "block": block,
    "sequence": sequence,
    "none": none,
}
PASS_BY_PASS = frozenset({"token", "step", "none"})
"""Levels whose ratios belong to one pass each."""
