"""Items of rows at positions of an endless shuffled stream, resumed exactly: of rows that are all
in memory, or of rows that are read while a run goes on, shuffled within a bounded window.

    epoch e:  the shards in an order drawn from (seed, e), their rows in turn
    window:   `size` rows, made into items, whose order is drawn from (seed, e, first row)

Every process reads the same stream and takes the items at its own positions, so what a step trains
on does not depend on the number of processes. The state is that of the source where the present
window begins, which the window is read from again: the buffer of `IterableDataset.shuffle` would be
lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from mmrl.config import ConfigError, NotHereError
from mmrl.data.rows import open_rows, read_row, read_rows
from mmrl.data.stream import stream_rows
from mmrl.randomness import permutation, stable_seed

T = TypeVar("T")
Source = tuple[str, str | None, str | None]
Read = Callable[[str, Any], Sequence[T]]
START = {"first": 0, "epoch": 0, "row": 0, "source": None}
"""Where a stream begins: position of its first item, epoch, row of the epoch, state of the rows."""


@dataclass
class StoredRows(Generic[T]):
    """Items in memory, shuffled anew in every epoch.

    Attributes:
        items: of all rows.
        seed: of all orders.
    """

    items: Sequence[T]
    seed: int

    def take(self, positions: range) -> list[T]:
        """The items at positions of the stream."""
        return [self.items[n] for n in stream_rows(self.seed, positions, len(self.items))]


class RowStream(Generic[T]):
    """An endless stream of items, read from rows in windows.

    Args:
        source: file, pattern, folder or hub id of the rows, with configuration and split, see
            `mmrl.data.rows`.
        read: makes the items of a row from its place and the row; none for one that is left out.
        seed: of all orders.
        size: rows of a window, which is all that is held in memory.

    Raises:
        NotHereError, ConfigError: see `open_rows`.
    """

    def __init__(self, source: Source, read: Read[T], seed: int, size: int) -> None:
        self.source, self.read, self.seed, self.size = source, read, seed, size
        self.load_state_dict(START)

    def take(self, positions: Sequence[int]) -> list[T]:
        """The items at positions of the stream, which ascend from call to call; others are found by
        reading from the beginning again.

        Raises:
            ConfigError: a row that cannot be read, or an epoch without an item.
        """
        found = []
        for position in positions:
            if position < self.begins["first"]:
                self.load_state_dict(START)
            while position >= self.begins["first"] + len(self.items):
                self._advance()
            found.append(self.items[position - self.begins["first"]])
        return found

    def state_dict(self) -> dict[str, Any]:
        """Where the present window begins."""
        return self.begins

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()` of a stream of the same source, seed and size."""
        self.begins, self.items = state, list[T]()
        self.epoch, self.row = state["epoch"], state["row"]
        self.rows = open_rows(*self.source)
        if self.rows.num_shards > 1:
            # a buffer of one shuffles the shards alone; windows do the rest, and can be resumed
            seed = stable_seed(self.seed, "shards", self.epoch)
            self.rows = self.rows.shuffle(seed=seed, buffer_size=1)
        if state["source"] is not None:
            self.rows.load_state_dict(state["source"])
        self.iterator = iter(self.rows)

    def _advance(self) -> None:
        """Read the next window with an item."""
        first, ended = self.begins["first"] + len(self.items), False
        self.items = []
        while not self.items:
            # rows that have not been read since they were opened have no state yet
            state = self.rows.state_dict() or self.begins["source"]
            self.begins = {"first": first, "epoch": self.epoch, "row": self.row, "source": state}
            rows = list(islice(self.iterator, self.size))
            if not rows and ended:
                raise ConfigError(f"'{self.source[0]}' holds nothing to learn.")
            if not rows:
                ended = True
                self.load_state_dict({**START, "first": first, "epoch": self.epoch + 1})
            for n, row in enumerate(rows, start=self.row):
                self.items += self.read(*read_row(row, f"{self.source[0]}, row {n}"))
            order = permutation(len(self.items), self.seed, "window", self.epoch, self.row)
            self.items = [self.items[n] for n in order]
            self.row += len(rows)


def read_items(source: Source, read: Read[T]) -> list[T]:
    """The items of all rows, in their order; arguments and errors as of `describe_rows`."""
    items = [item for place, row in read_rows(*source) for item in read(place, row)]
    if not items:
        raise ConfigError(f"'{source[0]}' holds nothing to learn.")
    return items


def describe_rows(source: Source, read: Read[Any], kind: str, streaming: bool) -> str:
    """Say how many items rows have, as far as that is known.

    Args:
        source: of the rows, see `RowStream`.
        read: makes the items of a row, or refuses it.
        kind: what the items are, for the sentence.
        streaming: whether they are read as a stream, of which one row is read.

    Raises:
        ConfigError: a row that cannot be read, or no rows.
    """
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
