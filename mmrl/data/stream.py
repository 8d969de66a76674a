"""Which training examples a micro-batch holds: a shuffled stream that needs no state to resume."""

from __future__ import annotations

from functools import lru_cache

from mmrl.randomness import permutation


def stream_positions(step: int, rank: int, world_size: int, batch_size: int) -> range:
    """Return the places in the endless stream that one rank takes in one micro-batch.

    Ranks take neighbouring stretches, so two ranks with one micro-batch each see what one rank with
    two micro-batches sees.
    """
    first = (step * world_size + rank) * batch_size
    return range(first, first + batch_size)


def stream_rows(seed: int, positions: range, count: int) -> list[int]:
    """Return the dataset rows at places of the stream, which shuffles anew in every epoch.

    Args:
        seed: seed of the shuffles.
        positions: places in the stream, 0 is the first example of the run.
        count: rows of the dataset.
    """
    return [_epoch_order(seed, place // count, count)[place % count] for place in positions]


@lru_cache(maxsize=4)
def _epoch_order(seed: int, epoch: int, count: int) -> list[int]:
    return permutation(count, seed, "epoch", epoch)
