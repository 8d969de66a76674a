"""Answers to the questions of prompts, by category, as DPG-Bench reports them.

A category such as `attribute - color` is of two levels; questions of all images are pooled. `yes`
is the share answered with yes, `score` what is left where a question counts as no because a parent
does. DPG-Bench (arXiv 2403.05135) reports the former by category, and the mean over images of the
latter as its score, both times 100.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

from mmrl.evaluation.evaluation import Evaluation
from mmrl.evaluation.means import Table, mean_over_prompts
from mmrl.evaluation.results import format_table

OVER_IMAGES = "mean over images"


def mean_by_category(evaluation: Evaluation, key: str) -> dict[str, Table]:
    """`yes` and `score` of a reward with items: a row per category of both levels, the first level
    first, and `mean over images`."""
    pairs: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for prompt, items in zip(evaluation.prompts, evaluation.items[key], strict=True):
        for item in items:
            broad, _, detail = item.category.partition(" - ")
            for category in (broad, *([item.category] if detail else [])):
                pairs[category].append((prompt.id, item.answer, item.score))
    order = sorted(pairs, key=lambda category: (" - " in category, category))
    images = [
        (prompt.id, score)
        for prompt, score in zip(evaluation.prompts, evaluation.scores[key], strict=True)
        if not math.isnan(score)
    ]
    means = {OVER_IMAGES: mean_over_prompts(images)} if images else {}
    return {
        "yes": {c: mean_over_prompts((name, yes) for name, yes, _ in pairs[c]) for c in order},
        "score": {c: mean_over_prompts((name, s) for name, _, s in pairs[c]) for c in order}
        | means,
    }


def format_categories(key: str, columns: Mapping[str, Table]) -> str:
    """A line per category, `mean ± standard error`, times 100."""
    rows = {
        category: [
            *(_percent(table.get(category)) for table in columns.values()),
            f"{cell['n']:.0f}",
        ]
        for category, cell in columns["score"].items()
    }
    heads = [*((column, 18) for column in columns), ("n", 10)]
    width = max([len(key) + 8, *map(len, rows)]) + 2
    return format_table(f"{key} x 100", heads, rows, width) + "\n"


def _percent(cell: Mapping[str, float] | None) -> str:
    return f"{100 * cell['mean']:.2f} ± {100 * cell['stderr']:.2f}" if cell else "-"
