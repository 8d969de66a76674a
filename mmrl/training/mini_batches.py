"""Mini-batches: the parts of a rollout batch, each of which gives one optimiser step.

Blocks of consecutive groups, as small as divide evenly, are shuffled and then split. So every
mini-batch has as many rollouts of each block as any other, each process as many as any other, and
which rollouts it has depends on neither the number of processes nor the micro-batch. A group need
not stay together: its advantages are computed before.
"""

from math import lcm

from mmrl.randomness import permutation
from mmrl.rollouts.rollout import RolloutBatch


def split_mini_batches(
    batch: RolloutBatch, number: int, num_generations: int, *names: int | str
) -> list[RolloutBatch]:
    """Split this process's rollouts into mini-batches.

    Args:
        batch: of whole groups; its length is a multiple of `number`.
        number: of mini-batches; with 1 the batch stays as it is.
        num_generations: size of a group.
        names: name the draw of the order.
    """
    if number == 1:
        return [batch]
    size = lcm(number, num_generations)
    share = size // number
    rows: list[list[int]] = [[] for _ in range(number)]
    for first in range(0, len(batch), size):
        order = permutation(size, *names, *batch.names[first])
        for n, own in enumerate(rows):
            own += sorted(first + place for place in order[n * share : (n + 1) * share])
    return [batch.select(own) for own in rows]
