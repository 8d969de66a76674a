"""Benchmarks of images: a column per reward, a row per tag, as GenEval reports them."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.evaluation.evaluation import Evaluation
from mmrl.evaluation.means import Table, mean_by_tag
from mmrl.evaluation.question_categories import format_categories, mean_by_category
from mmrl.evaluation.results import Report, Results, finite_scores, format_table
from mmrl.types import Prompt


def plan(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """The prompts by tag and the number of images, for a dry run."""
    tags = Counter(str(prompt.metadata.get("tag", "untagged")) for prompt in prompts)
    images = len(prompts) * config.num_images_per_prompt
    return {
        "prompts": f"{len(prompts)}: {', '.join(f'{tag} {n}' for tag, n in tags.items())}",
        "images": f"{images}, in {math.ceil(images / config.batch_size)} batches",
    }


def report(config: EvalConfig, results: Results) -> Report:
    """The scores by tag of each reward."""
    [evaluation] = results.evaluations.values()
    tables = {k: mean_by_tag(evaluation.prompts, v) for k, v in evaluation.scores.items()}
    tables |= evaluation.diversity_tables()
    samples = [
        {"id": prompt.id, **finite_scores(evaluation, n)}
        for n, prompt in enumerate(evaluation.prompts)
    ]
    questions = {k: mean_by_category(evaluation, k) for k in evaluation.items}
    parts = [format_tags(tables) if tables else "no rewards, no scores\n"]
    parts += [format_categories(key, columns) for key, columns in questions.items()]
    correct = share_with_correct(evaluation, config.num_images_per_prompt)
    if correct:
        shares = ", ".join(f"{key} {share:.3f}" for key, share in correct.items())
        parts.append(f"share of prompts with an image that scores 1: {shares}\n")
    entropies = evaluation.diversity.entropies()
    parts += [f"{name} of all images: {value:.3f}\n" for name, value in entropies.items()]
    content = {
        "tables": tables,
        "entropies": entropies,
        **({"categories": questions} if questions else {}),
    }
    content |= {"prompts_with_correct": correct} if correct else {}
    return Report("\n".join(parts), tables, {**content, "samples": samples})


def share_with_correct(evaluation: Evaluation, each: int) -> dict[str, float]:
    """Share of prompts of which an image scores 1, GenEval's "correct prompts"; of rewards that
    score every image 0 or 1, where prompts have several.

    Args:
        evaluation: of a benchmark.
        each: images per prompt.
    """
    return {
        key: statistics.fmean(max(scores[n : n + each]) for n in range(0, len(scores), each))
        for key, scores in evaluation.scores.items()
        if each > 1 and all(score in (0, 1) for score in scores)
    }


def format_tags(tables: Mapping[str, Table]) -> str:
    """One column per reward, one line per tag, `mean ± standard error`."""
    lines: dict[str, list[str]] = {}
    for row in dict.fromkeys(row for table in tables.values() for row in table):
        cells = [table.get(row) for table in tables.values()]
        shown = [f"{c['mean']:.3f} ± {c['stderr']:.3f}" if c else "-" for c in cells]
        lines[row] = [*shown, str(next(int(c["n"]) for c in cells if c))]
    return (
        format_table("", [*((key, max(18, len(key) + 2)) for key in tables), ("n", 8)], lines, 20)
        + "\n"
    )
