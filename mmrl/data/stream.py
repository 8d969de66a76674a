"""The training examples of a micro-batch: a shuffled stream that needs no state to resume."""

from functools import lru_cache

from mmrl.randomness import permutation


def stream_positions(step: int, rank: int, world_size: int, batch_size: int) -> range:
    """Return the positions in the endless stream of one rank's micro-batch.

    Ranks take neighbouring stretches, so two ranks with one micro-batch each get the examples of
    one rank with two micro-batches.
    """
    first = (step * world_size + rank) * batch_size
    return range(first, first + batch_size)


def stream_rows(seed: int, positions: range, count: int) -> list[int]:
    """Return which of `count` rows are at positions of the stream, which is shuffled in every
    epoch; position 0 is the first example of the run."""
    return [_epoch_order(seed, n // count, count)[n % count] for n in positions]


@lru_cache(maxsize=4)
def _epoch_order(seed: int, epoch: int, count: int) -> list[int]:
    return permutation(count, seed, "epoch", epoch)
