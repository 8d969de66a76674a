"""Benchmarks of texts: a row per sampler setting, a further table per group of prompts."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.evaluation.eval_config import EvalConfig
from mmrl.evaluation.results import Report, Results, finite_scores, format_table
from mmrl.evaluation.text_scores import Groups, Row, group_places, score_groups, score_row
from mmrl.rollouts.held_out import Batch, Evaluation
from mmrl.rollouts.means import OVER_PROMPTS
from mmrl.types import Prompt

NOTE = """\
accuracy: mean of the first reward, with its standard error over prompts. length: mean tokens before
the end. truncated: share of completions without an end. NFE: forward passes per batch.
tokens/s: those of length, per device; raw: all response positions, also those after the end.
"""
_COLUMNS = {
    "length": ("length", ".1f"),
    "cut_off": ("truncated", ".3f"),
    "nfe": ("NFE", ".1f"),
    "tokens_per_s": ("tokens/s", ".1f"),
    "raw_tokens_per_s": ("raw", ".1f"),
    "n": ("n", ".0f"),
}
"""Heads and formats of the columns behind the scores."""


def plan(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """The prompts by group and the number of batches, for a dry run."""
    groups = group_places(prompts, config.group_by).items()
    counts = {k: ", ".join(f"{v} {len(each)}" for v, each in group.items()) for k, group in groups}
    batches = math.ceil(len(prompts) * config.num_samples / config.batch_size)
    return {
        "prompts": f"{len(prompts)}, {config.num_samples} completions each",
        **counts,
        **({"prefill": repr(config.assistant_prefill)} if config.assistant_prefill else {}),
        "batches": f"{batches} of each row of the table",
    }


def report(config: EvalConfig, results: Results) -> Report:
    """Scores, cost and groups of each setting."""
    rows: dict[str, Row] = {}
    groups: dict[str, Groups] = {}
    samples: dict[str, list[dict[str, Any]]] = {}
    number, prompts = config.num_samples, []
    for label, evaluation in results.evaluations.items():
        prompts, batches = evaluation.prompts, results.batches[label]
        lengths = [length for batch in batches for length in batch.lengths]
        scores = score_row(prompts, evaluation.scores, number) | diversity_row(evaluation)
        rows[label] = scores | cost_row(batches)
        groups[label] = score_groups(prompts, evaluation.scores, number, config.group_by)
        samples[label] = [
            {
                "id": prompt.id,
                "sample": n % number,
                "completion": evaluation.completions[n],
                "length": lengths[n],
                "scores": finite_scores(evaluation, n),
            }
            for n, prompt in enumerate(prompts)
        ]
    content = {
        "table": rows,
        "groups": groups,
        "left_out": results.left_out,
        "prompts": {prompt.id: prompt.text for prompt in prompts},
        "samples": samples,
    }
    return Report(format_rows(rows, results.left_out, groups), content)


def cost_row(batches: Sequence[Batch]) -> Row:
    """Cost of the completions of one setting: `length` (mean), `cut_off` (share without an end),
    `nfe` (forward passes of a completion's batch, mean over completions), `tokens_per_s` (of
    `length`) and `raw_tokens_per_s` (of all positions) of one device."""
    lengths = [length for batch in batches for length in batch.lengths]
    count, positions = len(lengths), batches[0].positions
    seconds = math.fsum(batch.seconds for batch in batches)
    return {
        "length": statistics.fmean(lengths),
        "cut_off": lengths.count(positions) / count,
        "nfe": sum(batch.forwards * len(batch.lengths) for batch in batches) / count,
        "tokens_per_s": sum(lengths) / seconds,
        "raw_tokens_per_s": count * positions / seconds,
    }


def diversity_row(evaluation: Evaluation) -> Row:
    """`diversity/<value>/mean` and `/stderr`, over the prompts with several completions."""
    return {
        f"{key}/{name}": table[OVER_PROMPTS][name]
        for key, table in evaluation.diversity_tables().items()
        for name in ("mean", "stderr")
    }


def format_rows(
    rows: Mapping[str, Row], left_out: int = 0, groups: Mapping[str, Groups] | None = None
) -> str:
    """One line per setting (`-` for a value that does not exist), then one per group of prompts,
    and the meaning of the columns."""
    parts = [_format(rows)]
    for label, tables in (groups or {}).items():
        for key, table in tables.items():
            parts.append(_format(table, key if len(rows) == 1 else f"{label}: {key}"))
    missing = (
        f"{left_out} prompts too long for model.max_prompt_length, or with images and completion"
        " for the checkpoint, are left out.\n"
    )
    return "\n\n".join([*parts, NOTE]) + (missing if left_out else "")


def _format(rows: Mapping[str, Row], title: str = "") -> str:
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    # avg@1 and pass@1 would repeat the accuracy
    scores = [k for k in columns if ("@" in k and not k.endswith("@1")) or k.endswith("/mean")]
    shown = ["accuracy", *scores, *(key for key in _COLUMNS if key in columns)]
    cells = {label: [_cell(row, key) for key in shown] for label, row in rows.items()}
    return format_table(title, [_head(key) for key in shown], cells)


def _head(key: str) -> str:
    name = key.removeprefix("rewards/").removesuffix("/mean")
    return _COLUMNS[key][0] if key in _COLUMNS else name


def _cell(row: Row, key: str) -> str:
    if key not in row:
        return "-"
    if key == "accuracy" or key.endswith("/mean"):
        error = row["stderr" if key == "accuracy" else key.replace("/mean", "/stderr")]
        return f"{row[key]:.3f} ± {error:.3f}"
    return format(row[key], _COLUMNS[key][1] if key in _COLUMNS else ".3f")
