"""What `mmrl.eval` runs: samples of every setting scored, and their tables written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.benchmark import Sampled, json_scores, passes, reward_keys, sample_all
from eval.evaluation import Batch, Evaluation, scored
from eval.groups import Groups, by_group, sizes
from eval.text_config import EvalConfig
from eval.text_table import Row, as_text, cost, quality
from mmrl.config import to_plain
from mmrl.run.environment import git_commit
from mmrl.types import Prompt


def run(config: EvalConfig) -> dict[str, Row] | None:
    """Sample, score and write a benchmark.

    Returns:
        The table's rows by label; None on all processes but the main one.

    Raises:
        ConfigError, FileNotFoundError, ValueError: see `sample_all`.
        RewardError: a reward failed more often than `max_failures` allows.
    """
    sampled = sample_all(config, config.rows(), config.num_samples)
    if sampled is None:
        return None
    results = {
        label: scored(sampled.rows, batches, sampled.scorer)
        for label, batches in sampled.batches.items()
    }
    rows = {
        label: quality(result.prompts, result.scores, config.num_samples)
        | _cost(sampled.batches[label])
        for label, result in results.items()
    }
    groups = {
        label: by_group(result.prompts, result.scores, config.num_samples, config.group_by)
        for label, result in results.items()
    }
    out, content = Path(config.output_dir), _scores(config, rows, groups, sampled, results)
    (out / "table.txt").write_text(as_text(rows, sampled.left_out, groups), encoding="utf-8")
    (out / "scores.json").write_text(content, encoding="utf-8")
    return rows


def _cost(batches: Sequence[Batch]) -> Row:
    return cost(
        _lengths(batches),
        batches[0].positions,
        [(batch.forwards, len(batch.lengths)) for batch in batches],
        math.fsum(batch.seconds for batch in batches),
    )


def _lengths(batches: Sequence[Batch]) -> list[int]:
    return [length for batch in batches for length in batch.lengths]


def _scores(
    config: EvalConfig,
    rows: dict[str, Row],
    groups: dict[str, Groups],
    sampled: Sampled,
    results: Mapping[str, Evaluation],
) -> str:
    """Settings, tables, prompts, completions and scores; a score that does not exist is null."""
    content = {
        "commit": git_commit(),
        "config": to_plain(config),
        "table": rows,
        "groups": groups,
        "left_out": sampled.left_out,
        "prompts": {prompt.id: prompt.text for prompt, _ in sampled.rows},
        "samples": {
            label: _samples(sampled.rows, result, _lengths(sampled.batches[label]))
            for label, result in results.items()
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _samples(
    rows: Sequence[tuple[Prompt, int]], result: Evaluation, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    return [
        {
            "id": prompt.id,
            "sample": k,
            "completion": result.completions[n],
            "length": lengths[n],
            "scores": json_scores(result.scores, n),
        }
        for n, (prompt, k) in enumerate(rows)
    ]


def plan_of(config: EvalConfig, prompts: Sequence[Prompt]) -> dict[str, str]:
    """What a run would do; nothing is loaded."""
    rows, counted = len(prompts) * config.num_samples, sizes(prompts, config.group_by)
    return {
        "prompts": f"{len(prompts)}, {config.num_samples} completions each",
        **{
            key: ", ".join(f"{v} {n}" for v, n in counts.items()) for key, counts in counted.items()
        },
        "batches": f"{math.ceil(rows / config.batch_size)} of each row of the table",
        "sampler": passes(config.rows(), rows, config.batch_size),
        "rewards": reward_keys(config),
        "output": config.output_dir,
    }
