"""Text-to-image benchmark in GenEval's manner: a score per tag and their mean.

GenEval (arXiv 2310.11513) reports the share of right images per tag and, overall, the mean over
tags. Both that and the mean over prompts are given, each with its standard error.

Images of one prompt are not independent. With m_p images of prompt p, N in all and mean x̄,

    stderr² = P / (P - 1) · Σ_p (Σ_i (x_pi - x̄))² / N²

over the P prompts; for one image per prompt it is the sample deviation over the root of N.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mmrl.types import Prompt

Table = dict[str, dict[str, float]]
"""Row -> {`mean`, `stderr`, `n`}."""

ALL, OVER_TAGS, OVER_PROMPTS = "all", "mean over tags", "mean over prompts"


def by_tag(prompts: Sequence[Prompt], scores: Sequence[float]) -> Table:
    """Scores by tag, then `mean over tags` and `mean over prompts`.

    Args:
        prompts: one per score; `metadata["tag"]` names the row, `all` where there is none.
        scores: NaN where the reward did not apply; left out.
    """
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for prompt, score in zip(prompts, scores, strict=True):
        if not math.isnan(score):
            groups[str(prompt.metadata.get("tag", ALL))].append((prompt.id, score))
    table = {tag: _summary(group) for tag, group in groups.items()}
    if not table:
        return {}
    rows = list(table.values())
    over_tags = {
        "mean": statistics.fmean(row["mean"] for row in rows),
        "stderr": math.sqrt(sum(row["stderr"] ** 2 for row in rows)) / len(rows),
        "n": sum(row["n"] for row in rows),
    }
    everything = _summary(pair for group in groups.values() for pair in group)
    return {**table, OVER_TAGS: over_tags, OVER_PROMPTS: everything}


def as_text(tables: Mapping[str, Table]) -> str:
    """One column per reward, one line per tag, `mean ± standard error`."""
    rows = list(dict.fromkeys(row for table in tables.values() for row in table))
    lines = ["".join([f"{'':<20}", *(f"{key:>18}" for key in tables), f"{'n':>8}"])]
    for row in rows:
        cells = [table.get(row) for table in tables.values()]
        shown = [f"{c['mean']:.3f} ± {c['stderr']:.3f}" if c else "-" for c in cells]
        number = next(int(c["n"]) for c in cells if c)
        lines.append("".join([f"{row:<20}", *(f"{cell:>18}" for cell in shown), f"{number:>8}"]))
    return "\n".join(lines) + "\n"


def _summary(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Mean of (prompt id, score) pairs; its standard error is 0 for a single prompt."""
    prompts: dict[str, list[float]] = defaultdict(list)
    for name, score in pairs:
        prompts[name].append(score)
    number = sum(len(scores) for scores in prompts.values())
    mean = math.fsum(score for scores in prompts.values() for score in scores) / number
    sums = [math.fsum(score - mean for score in scores) for scores in prompts.values()]
    spread = len(sums) / max(1, len(sums) - 1) * math.fsum(part * part for part in sums)
    return {"mean": mean, "stderr": math.sqrt(spread) / number, "n": float(number)}
