"""Mean of scores and its standard error where several samples share a prompt.

Samples of one prompt are not independent. With m_p samples of prompt p, N in all and mean x̄,

    stderr² = P / (P - 1) · Σ_p (Σ_i (x_pi - x̄))² / N²

over the P prompts; for one sample per prompt it is the sample deviation over the root of N.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable


def mean_over_prompts(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """`mean`, `stderr` and number `n` of (prompt id, score) pairs.

    Args:
        pairs: at least one; the standard error of a single prompt is 0.
    """
    prompts: dict[str, list[float]] = defaultdict(list)
    for name, score in pairs:
        prompts[name].append(score)
    number = sum(len(scores) for scores in prompts.values())
    mean = math.fsum(score for scores in prompts.values() for score in scores) / number
    sums = [math.fsum(score - mean for score in scores) for scores in prompts.values()]
    spread = len(sums) / max(1, len(sums) - 1) * math.fsum(part * part for part in sums)
    return {"mean": mean, "stderr": math.sqrt(spread) / number, "n": float(number)}
