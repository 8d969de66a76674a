"""Blocks: stretches of a response that are written one after the other, with equal steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mmrl.config import check
from mmrl.samplers.settings import SamplerConfig

if TYPE_CHECKING:
    from torch import Tensor


class Block(NamedTuple):
    """`positions` [B, L] bool, number of the `first` of its `steps` among all steps."""

    positions: Tensor
    first: int
    steps: int

    @property
    def columns(self) -> tuple[int, int]:
        """Half-open range of canvas columns from the block's first to its last position."""
        used = self.positions.any(0).nonzero().flatten()
        return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


def blocks(response: Tensor, settings: SamplerConfig) -> list[Block]:
    """The blocks of a batch, from the left.

    Args:
        response: [B, L] bool, positions the policy writes.
        settings: of the sampler.

    Raises:
        ConfigError: see `check_blocks`.
        ValueError: rows with different numbers of response positions.
    """
    if settings.block_size is None:
        return [Block(response, 0, settings.steps)]
    counts = set(response.sum(1).tolist())
    if len(counts) > 1:
        raise ValueError(
            f"rows have {sorted(counts)} response positions; blocks need the same number in each"
        )
    number = check_blocks(settings, counts.pop() if counts else 0)
    place = (response.cumsum(1) - 1) // settings.block_size
    steps = settings.steps // number
    return [Block(response & (place == k), k * steps, steps) for k in range(number)]


def check_blocks(settings: SamplerConfig, length: int, where: str = "sampler") -> int:
    """Number of blocks of a response of `length` positions.

    Raises:
        ConfigError: blocks that do not divide the response, or steps that do not divide among them.
    """
    size = settings.block_size or max(1, length)
    check(
        length % size == 0,
        f"{where}.block_size",
        size,
        f"a divisor of the {length} response positions",
    )
    number = max(1, length // size)
    check(
        settings.steps % number == 0,
        f"{where}.steps",
        settings.steps,
        f"a multiple of the {number} blocks",
        "Every block takes the same number of steps.",
    )
    return number
