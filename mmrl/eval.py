"""Text benchmarks: scores in all and by group, length, passes and speed of each sampler setting.

    python -m mmrl.eval config=configs/eval/llada_gsm8k.yaml
    accelerate launch --config_file … -m mmrl.eval config=configs/eval/….yaml

Writes `scores.json` (every completion and score) and `table.txt` into `output_dir`; what is sampled
already is in its `samples/`, see `mmrl.benchmark`. `mmrl.eval_v` runs the same on questions about
images.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.groups import Groups, by_group, sizes
from eval.text import Row, as_text, cost, quality
from mmrl.benchmark import (
    BenchmarkConfig,
    Sampled,
    Setting,
    check_setting,
    command,
    json_scores,
    passes,
    reward_keys,
    sample_all,
)
from mmrl.command import exit_status
from mmrl.config import ConfigError, check, check_choice, merge
from mmrl.evaluation import Batch, Evaluation, scored
from mmrl.inputs import load_ready
from mmrl.run_directory import git_commit
from mmrl.samplers import SamplerConfig
from mmrl.types import Prompt
from models.policy import TASKS, writes_images
from rewards.scoring import RewardError

_SHORT = {"max_completion_length": "length"}


@dataclass(kw_only=True)
class EvalConfig(BenchmarkConfig):
    """Settings of a text benchmark. The first reward gives the accuracy."""

    num_samples: int = 1
    """Completions per prompt: k of avg@k, and the largest k of pass@k."""
    max_completion_length: int = 256
    """Response positions of a completion."""
    settings: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the table, each what differs from `sampler` and `max_completion_length`, and if
    wanted a `label`; empty for one row."""
    group_by: list[str] | None = None
    """Metadata whose values get tables of their own, such as `[tag, form]`; null takes these two
    where prompts differ in them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.num_samples >= 1, "num_samples", self.num_samples, "at least 1")
        if not self.rewards:
            raise ConfigError("rewards is empty; name one, such as {name: math}.")
        check_choice("task", self.task, [task for task in TASKS if not writes_images(task)])
        self.rows()

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Raise a ConfigError where no prompt has what they are grouped by."""
        sizes(prompts, self.group_by)

    def rows(self) -> dict[str, Setting]:
        """Sampler and length of each row, by label.

        Raises:
            ConfigError: a row that cannot be sampled, or two with one label.
        """
        rows: dict[str, Setting] = {}
        for n, entry in enumerate(self.settings or [{}]):
            try:
                label, setting = self._row(entry)
                check(label not in rows, "label", label, "another than those of the rows above")
            except ConfigError as error:
                raise ConfigError(
                    f"settings[{n}]: {error}" if self.settings else f"{error}"
                ) from error
            rows[label] = setting
        return rows

    def _row(self, entry: Mapping[str, Any]) -> tuple[str, Setting]:
        base = {**asdict(self.sampler), "max_completion_length": self.max_completion_length}
        row = merge(RowConfig, base, entry)
        named = ", ".join(f"{_SHORT.get(key, key)} {value}" for key, value in entry.items())
        setting = Setting(row.sampler(), row.max_completion_length)
        check_setting(setting)
        return row.label or named or row.name, setting


@dataclass(kw_only=True)
class RowConfig(SamplerConfig):
    """A sampler with its length and its name in the table."""

    label: str = ""
    """Name of the row; empty names what differs."""
    max_completion_length: int = 256
    """Response positions of a completion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        length = self.max_completion_length
        check(length >= 1, "max_completion_length", length, "at least 1")

    def sampler(self) -> SamplerConfig:
        """The sampler alone."""
        own = {"label", "max_completion_length"}
        return SamplerConfig(**{k: v for k, v in asdict(self).items() if k not in own})


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
        _lengths(batches), batches[0].positions,
        [(batch.forwards, len(batch.lengths)) for batch in batches],
        math.fsum(batch.seconds for batch in batches),
    )  # fmt: skip


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
        "config": asdict(config),
        "table": rows,
        "groups": groups,
        "left_out": sampled.left_out,
        "prompts": {prompt.id: prompt.text for prompt, _ in sampled.rows},
        "samples": {
            label: _samples(sampled.rows, result, _lengths(sampled.batches[label]))
            for label, result in results.items()
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=repr) + "\n"


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


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; return the exit status."""
    return exit_status(
        lambda: command(load_ready(EvalConfig, arguments), plan_of, run), RewardError
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
