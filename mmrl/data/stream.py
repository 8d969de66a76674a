"""Items of rows at positions of an endless shuffled stream, resumed exactly: of rows that are all
in memory, or of rows that are read while a run goes on, shuffled by `datasets` within a buffer.

Every process reads the same stream and takes the items at its own positions, so what a step trains
on does not depend on the number of processes. A resumed stream reads its epoch from the beginning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from mmrl.config import ConfigError, NotHereError
from mmrl.data.rows import open_rows, read_row, read_rows
from mmrl.randomness import permutation, stable_seed

T = TypeVar("T")
Source = tuple[str, str | None, str | None]
Read = Callable[[str, Any], Sequence[T]]
START = {"epoch": 0, "first": 0}
"""Where a stream begins."""


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
    return [_permutation(count, seed, "epoch", n // count)[n % count] for n in positions]


_permutation = lru_cache(maxsize=4)(permutation)


@dataclass
class StoredRows(Generic[T]):
    """Items of all rows in memory, shuffled anew in every epoch by the seed."""

    items: Sequence[T]
    seed: int

    def take(self, positions: range) -> list[T]:
        """The items at positions of the stream."""
        return [self.items[n] for n in stream_rows(self.seed, positions, len(self.items))]


class RowStream(Generic[T]):
    """An endless stream of items, in orders by the seed, read from rows, see `mmrl.data.rows`, and
    shuffled in a buffer of `size` rows, which is all that is held in memory. `read` makes the items
    of a row from its place and the row; none for one that is left out.

    Raises NotHereError, ConfigError: see `open_rows`."""

    def __init__(self, source: Source, read: Read[T], seed: int, size: int) -> None:
        self.source, self.read, self.seed, self.size = source, read, seed, size
        self.load_state_dict(START)

    def take(self, positions: Sequence[int]) -> list[T]:
        """The items at positions of the stream, which ascend from call to call; others are found by
        reading from the beginning again. Raises ConfigError: a row that cannot be read, or an epoch
        without an item."""
        found = []
        for position in positions:
            if position < self.position:
                self.load_state_dict(START)
            for _ in range(position - self.position):
                self._next()
            found.append(self._next())
        return found

    def state_dict(self) -> dict[str, int]:
        """Number and first position of the present epoch."""
        return self.begins

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from `state_dict()` of a stream of the same source, seed and size."""
        self.begins, self.position = state, state["first"]
        self.items = self._read_epoch(state["epoch"])

    def _next(self) -> T:
        item = next(self.items, None)
        if item is None and self.position == self.begins["first"]:
            raise ConfigError(f"'{self.source[0]}' holds nothing to learn.")
        if item is None:
            epoch = self.begins["epoch"] + 1
            self.load_state_dict({"epoch": epoch, "first": self.position})
            return self._next()
        self.position += 1
        return item

    def _read_epoch(self, epoch: int) -> Iterator[T]:
        seed = stable_seed(self.seed, "rows", epoch)
        rows = open_rows(*self.source).shuffle(seed=seed, buffer_size=self.size)
        for n, row in enumerate(rows):
            yield from self.read(*read_row(row, f"{self.source[0]}, row {n} of the stream"))


def read_items(source: Source, read: Read[T]) -> list[T]:
    """The items of all rows, in their order; arguments and errors as of `describe_rows`."""
    items = [item for place, row in read_rows(*source) for item in read(place, row)]
    if not items:
        raise ConfigError(f"'{source[0]}' holds nothing to learn.")
    return items


def describe_rows(source: Source, read: Read[Any], kind: str, streaming: bool) -> str:
    """Say how many items of a `kind` rows have; with `streaming` one row is read. Raises
    ConfigError: a row that cannot be read, or no rows."""
    said = f"{kind} of {source[0]}"
    try:
        if not streaming:
            return f"{len(read_items(source, read))} {said}"
        for row in open_rows(*source).take(1):
            read(*read_row(row, f"{source[0]}, row 0"))
            return f"{said}, of which one row is read"
    except NotHereError:
        return f"{said}, which is not on this machine: its columns could not be checked"
    raise ConfigError(f"'{source[0]}' holds nothing to learn.")
