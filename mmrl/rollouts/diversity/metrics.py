"""What the engine asks of a diversity metric, and the metrics of texts and tokens."""

from __future__ import annotations

from collections.abc import Sequence
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
    """A way to compare completions; its constructor takes no arguments.

    Attributes:
        reads: the completions it can compare.
        values: names of what `compare` returns.
    """

    reads: ClassVar[Literal["images", "texts", "both"]]
    values: ClassVar[tuple[str, ...]]

    def describe(self, completions: Completions) -> Sequence[Any]:
        """What is compared of each completion; called on the process that sampled them, without
        gradient."""
        ...

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """The difference of two descriptions by each of `values`, 0 for equal ones; NaN where it is
        not known."""
        ...


def list_tokens(canvas: Canvas) -> list[list[int]]:
    """Tokens of each of B finished responses, see `Completions`."""
    tokens, scorable = canvas.tokens.cpu(), canvas.scorable.cpu()
    return [row[mine].tolist() for row, mine in zip(tokens, scorable, strict=True)]


class TokenDiversity:
    """Share of tokens in which two completions differ: d(a, b) = #{p : a_p != b_p} / max(|a|, |b|).

    Tokens are compared position by position; those beyond the end of the shorter text count as
    different. It needs no decoding, and is the same for texts and for images of any tokenizer.
    """

    reads: ClassVar = "both"
    values: ClassVar = ("tokens",)

    def describe(self, completions: Completions) -> Sequence[Any]:
        """The tokens of each as int64."""
        import numpy as np

        return [np.asarray(row, dtype=np.int64) for row in completions.tokens]

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """The share, from 0 to 1."""
        longest, shared = max(len(one), len(other)), min(len(one), len(other))
        same = int((one[:shared] == other[:shared]).sum())
        return [1 - same / longest if longest else 0.0]


class TextDiversity:
    """Share of pairs of texts that differ, apart from white space; `tokens` says how much."""

    reads: ClassVar = "texts"
    values: ClassVar = ("text",)

    def describe(self, completions: Completions) -> Sequence[Any]:
        """The words of each."""
        return [str(text).split() for text in completions.completions]

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """0 or 1."""
        return [float(one != other)]
