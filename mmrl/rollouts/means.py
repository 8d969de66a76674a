"""Means of scores and their standard errors, over prompts and by tag.

Samples of one prompt are not independent. With m_p samples of prompt p, N in all and mean x̄,

    stderr² = P / (P - 1) · Σ_p (Σ_i (x_pi - x̄))² / N²

over the P prompts; for one sample per prompt it is the sample deviation over the root of N.

GenEval (arXiv 2310.11513) reports the accuracy per tag and, overall, the mean over tags. Both that
and the mean over prompts are given.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mmrl.types import Prompt

Table = dict[str, dict[str, float]]
"""Row -> {`mean`, `stderr`, `n`}."""

UNTAGGED, OVER_TAGS, OVER_PROMPTS = "all", "mean over tags", "mean over prompts"


def mean_over_prompts(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """`mean`, `stderr` and number `n` of (prompt id, score) pairs, one or more; the standard error
    of a single prompt is 0."""
    prompts: dict[str, list[float]] = defaultdict(list)
    for name, score in pairs:
        prompts[name].append(score)
    number = sum(len(scores) for scores in prompts.values())
    mean = math.fsum(score for scores in prompts.values() for score in scores) / number
    sums = [math.fsum(score - mean for score in scores) for scores in prompts.values()]
    spread = len(sums) / max(1, len(sums) - 1) * math.fsum(part * part for part in sums)
    return {"mean": mean, "stderr": math.sqrt(spread) / number, "n": float(number)}


def mean_by_tag(prompts: Sequence[Prompt], scores: Sequence[float]) -> Table:
    """Scores by tag, then `mean over tags` and `mean over prompts`; empty without any score. A
    prompt's `metadata["tag"]` names the row, `all` where there is none; scores that are NaN, as the
    reward did not apply, are left out."""
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for prompt, score in zip(prompts, scores, strict=True):
        if not math.isnan(score):
            groups[str(prompt.metadata.get("tag", UNTAGGED))].append((prompt.id, score))
    table = {tag: mean_over_prompts(group) for tag, group in groups.items()}
    if not table:
        return {}
    rows = list(table.values())
    over_tags = {
        "mean": statistics.fmean(row["mean"] for row in rows),
        "stderr": math.sqrt(sum(row["stderr"] ** 2 for row in rows)) / len(rows),
        "n": sum(row["n"] for row in rows),
    }
    everything = mean_over_prompts(pair for group in groups.values() for pair in group)
    return {**table, OVER_TAGS: over_tags, OVER_PROMPTS: everything}
