"""What the engine asks of a diversity metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from PIL import Image

    from mmrl.types import Canvas


class Completions(NamedTuple):
    """Completions, and the tokens of each: up to and including the first end token of a text, all
    of an image."""

    completions: Sequence[str | Image.Image]
    tokens: Sequence[Sequence[int]]


class DiversityMetric(Protocol):
    """A way to compare completions; its constructor takes options as typed keyword arguments.

    Attributes:
        reads: the completions it can compare.
        values: names of what `compare` returns.
        labels: names of what `label` returns, each with the number of labels that there are.
    """

    reads: ClassVar[Literal["images", "texts", "both"]]
    values: ClassVar[tuple[str, ...]]
    labels: ClassVar[Mapping[str, int]]

    def describe(self, completions: Completions) -> Sequence[Any]:
        """What is compared of each completion; called on the process that sampled them, without
        gradient."""
        ...

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """The difference of two descriptions by each of `values`, 0 for equal ones; NaN where it is
        not known."""
        ...

    def label(self, one: Any) -> Sequence[str]:
        """The labels of a description, "" where it is not known. Of labels the entropy over all
        completions of a step or an evaluation is reported."""
        ...


def list_tokens(canvas: Canvas) -> list[list[int]]:
    """Tokens of each of B finished responses, see `Completions`."""
    tokens, scorable = canvas.tokens.cpu(), canvas.scorable.cpu()
    return [row[mine].tolist() for row, mine in zip(tokens, scorable, strict=True)]
