"""Log-probs of the tokens of finished canvases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.types import Scores


def score(*arguments: Any, **options: Any) -> Scores:
    """See `mmrl.estimators.score`. Settings are read without torch, which this imports."""
    from mmrl.generation.tokens.scoring.scoring import score

    return score(*arguments, **options)
