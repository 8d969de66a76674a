"""Text-to-image benchmark in GenEval's manner: a score per tag and their mean.

GenEval (arXiv 2310.11513) reports the share of right images per tag and, overall, the mean over
tags. Both that and the mean over prompts are given, each with its standard error.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from eval.mean import mean_over_prompts
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
