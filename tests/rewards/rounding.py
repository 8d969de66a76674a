"""How far two scores of a sample may lie apart that batches of other sizes gave.

Matrix products of other shapes sum in another order, which float32 rounds by about 1e-7 of the
terms; through the layers of a tower that adds up to less than 1e-5 of a score.
"""

from collections.abc import Sequence
from typing import Any

import pytest


def up_to_rounding(scores: Sequence[float | None]) -> Any:
    """What equals the scores up to rounding."""
    return pytest.approx(scores, rel=1e-5, abs=1e-5)
