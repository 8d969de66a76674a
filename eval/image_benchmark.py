"""Benchmarks of images and videos: a column per reward, a row per tag, as GenEval reports them.

Rewards that ask questions about an image also get a row per category of question, as DPG-Bench
(arXiv 2403.05135) has them: `yes` is the share answered with yes, pooled over all images, `score`
what is left where a question counts as no because a parent does. A category such as
`attribute - color` counts on both of its levels.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.evaluation.results import Report, Results, finite_scores, format_table
from mmrl.models.task_names import completions_of
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.means import OVER_PROMPTS, Table, mean_by_tag, mean_over_prompts
from mmrl.types import Prompt


def plan(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """The prompts by tag and the number of images, for a dry run."""
    tags = Counter(str(prompt.metadata.get("tag", "untagged")) for prompt in prompts)
    number, made = len(prompts) * config.num_images_per_prompt, completions_of(config.task)
    return {
        "prompts": f"{len(prompts)}: {', '.join(f'{tag} {n}' for tag, n in tags.items())}",
        made: f"{number}, in {math.ceil(number / config.batch_size)} batches",
    }


def report(config: EvalConfig, results: Results) -> Report:
    """The scores by tag of each reward."""
    [evaluation] = results.evaluations.values()
    tables = {k: mean_by_tag(evaluation.prompts, v) for k, v in evaluation.scores.items()}
    tables |= evaluation.diversity_tables()
    questions = {key: mean_by_category(evaluation, key) for key in evaluation.items}
    parts = [format_rows("", tables) if tables else "no rewards, no scores\n"]
    parts += [format_rows(f"{k} x 100", columns, 100) for k, columns in questions.items()]
    samples = [
        {"id": prompt.id, **finite_scores(evaluation, n)}
        for n, prompt in enumerate(evaluation.prompts)
    ]
    content = {"tables": tables, "categories": questions, "samples": samples}
    return Report("\n".join(parts), content)


def mean_by_category(evaluation: Evaluation, key: str) -> dict[str, Table]:
    """`yes` and `score` of a reward with items: a row per category of both levels, the first level
    first, and the mean score over prompts."""
    pairs: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for prompt, items in zip(evaluation.prompts, evaluation.items[key], strict=True):
        for item in items:
            broad = item.category.partition(" - ")[0]
            for category in dict.fromkeys((broad, item.category)):
                pairs[category].append((prompt.id, item.answer, item.score))
    order = sorted(pairs, key=lambda category: (" - " in category, category))
    scores = {c: mean_over_prompts((name, score) for name, _, score in pairs[c]) for c in order}
    by_tag = mean_by_tag(evaluation.prompts, evaluation.scores[key])
    return {
        "yes": {c: mean_over_prompts((name, yes) for name, yes, _ in pairs[c]) for c in order},
        "score": scores | {row: by_tag[row] for row in (OVER_PROMPTS,) if by_tag},
    }


def format_rows(title: str, columns: Mapping[str, Table], scale: float = 1) -> str:
    """A column per table, a line per row, `mean ± standard error` times `scale`."""
    digits, lines = 3 if scale == 1 else 2, dict[str, list[str]]()
    for row in dict.fromkeys(row for table in columns.values() for row in table):
        cells = [table.get(row) for table in columns.values()]
        shown = [
            f"{scale * c['mean']:.{digits}f} ± {scale * c['stderr']:.{digits}f}" if c else "-"
            for c in cells
        ]
        lines[row] = [*shown, str(next(int(c["n"]) for c in cells if c))]
    return format_table(title, [*columns, "n"], lines) + "\n"
