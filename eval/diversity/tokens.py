"""Share of tokens in which two completions differ.

    d(a, b) = #{p : a_p != b_p} / max(|a|, |b|)

Tokens are compared position by position; those beyond the end of the shorter text count as
different. It needs no decoding, and is the same for texts and for images of any tokenizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mmrl.evaluation.diversity.metric import Completions


@dataclass(kw_only=True)
class TokenDiversity:
    """Share of differing tokens."""

    reads: ClassVar = "both"
    values: ClassVar = ("tokens",)
    labels: ClassVar = {}

    def describe(self, completions: Completions) -> Sequence[Any]:
        """The tokens of each as int64."""
        import numpy as np

        return [np.asarray(row, dtype=np.int64) for row in completions.tokens]

    def compare(self, one: Any, other: Any) -> Sequence[float]:
        """The share, from 0 to 1."""
        longest, shared = max(len(one), len(other)), min(len(one), len(other))
        same = int((one[:shared] == other[:shared]).sum())
        return [1 - same / longest if longest else 0.0]

    def label(self, one: Any) -> Sequence[str]:
        """None."""
        return ()
