"""Share of pairs of texts that are not the same.

    d(a, b) = 1 where the texts differ, apart from white space, and 0 otherwise

1 means that all completions of a prompt are distinct. `tokens` says how much they differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.evaluation.diversity.metric import Completions


@dataclass(kw_only=True)
class TextDiversity:
    """Share of pairs of distinct texts."""

    reads: ClassVar = "texts"
    values: ClassVar = ("text",)
    labels: ClassVar = {}

    def describe(self, completions: Completions) -> Sequence[Any]:
        """The words of each."""
        return [str(text).split() for text in completions.completions]

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """0 or 1."""
        return [float(one != other)]

    def label(self, one: Any) -> Sequence[str]:
        """None."""
        return ()
