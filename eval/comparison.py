"""Several checkpoints side by side: the same prompts, the same seeds, paired differences.

    <output_dir>/<checkpoint>/    the results of each, as a single evaluation writes them
    <output_dir>/comparison.txt   all tables, and the differences of `model.path` to the others
    <output_dir>/comparison.json  the same numbers

Checkpoints are loaded one after the other. Their samples are stored like those of any evaluation,
so an interrupted comparison continues, and a checkpoint that is added later is the only one that is
sampled.
"""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from mmrl.evaluation.benchmark import Outcome, check_benchmark, run_benchmark
from mmrl.evaluation.differences import Row, compare_evaluations, format_differences
from mmrl.evaluation.eval_config import EvalConfig, same_checkpoint
from mmrl.evaluation.results import Report
from mmrl.run.environment import git_commit
from mmrl.run.run_lock import check_writable, lock_directory
from mmrl.runtime.activity import activity
from mmrl.runtime.launch import join_processes
from mmrl.runtime.launch_checks import check_launch
from mmrl.types import Prompt

NOTE = """\
differences: first minus second on the same prompts and seeds, with the standard error and the 95 %
interval of paired differences; p of the two-sided sign test; prompts where the first scores more
(wins), the same, and less (losses).
"""


def run(config: EvalConfig) -> Report | None:
    """Evaluate `model.path`, and all of `compare_to`; see `mmrl.evaluation.benchmark.run`.

    Returns:
        What was written; None on all processes but the main one.
    """
    if not config.compare_to:
        return getattr(run_benchmark(config), "report", None)
    check_launch()
    configs, main = list_evaluations(config), join_processes().is_main_process
    check_evaluations(config)
    with lock_directory(Path(config.output_dir), main):
        found: dict[str, Outcome] = {}
        for label, each in configs.items():
            with activity(label):
                outcome = run_benchmark(each)
            if outcome is not None:
                found[label] = outcome
            _release()
        return _write_comparison(config, found) if found else None


def check_evaluations(config: EvalConfig, dry: bool = False) -> list[Prompt]:
    """`check_benchmark` of every checkpoint, before any is loaded; the prompts of all."""
    check_writable("output_dir", Path(config.output_dir))
    prompts = [check_benchmark(each, dry) for each in list_evaluations(config).values()]
    return prompts[0]


def list_evaluations(config: EvalConfig) -> dict[str, EvalConfig]:
    """The evaluation of each checkpoint by the name of its folder, that of `model.path` first."""
    if not config.compare_to:
        return {"": config}
    paths = [config.model.path, *config.compare_to]
    return {
        label: replace(
            config,
            compare_to=[],
            model=replace(config.model, path=path),
            output_dir=str(Path(config.output_dir) / label),
            geneval_dir=config.geneval_dir and str(Path(config.geneval_dir) / label),
        )
        for label, path in zip(name_checkpoints(paths), paths, strict=True)
    }


def name_checkpoints(paths: Sequence[str]) -> list[str]:
    """Names of checkpoints: the last two parts of their paths, or more where these are equal."""
    parts = [same_checkpoint(path).strip("/").split("/") for path in paths]
    for depth in range(2, max(2, *map(len, parts)) + 1):
        names = ["-".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{n}-{part[-1]}" for n, part in enumerate(parts)]


def _release() -> None:
    """Free what the last checkpoint took."""
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.memory.empty_cache()


def _write_comparison(config: EvalConfig, found: Mapping[str, Outcome]) -> Report:
    first, *others = found
    differences = {other: _differences(found[first], found[other]) for other in others}
    tables = {label: outcome.report.tables for label, outcome in found.items()}
    parts = [f"{label}\n\n{outcome.report.table}" for label, outcome in found.items()]
    for other, rows in differences.items():
        parts.append(f"first: {first}, second: {other}\n\n{_format(rows)}\n")
    report = Report("\n".join([*parts, NOTE]), tables, {"differences": differences})
    out, paths = Path(config.output_dir), [config.model.path, *config.compare_to]
    content = {
        "commit": git_commit(),
        "config": config.to_dict(),
        "checkpoints": dict(zip(found, paths, strict=True)),
        "tables": tables,
        "first": first,
        "differences": differences,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (out / "comparison.txt").write_text(report.table, encoding="utf-8")
    (out / "comparison.json").write_text(text + "\n", encoding="utf-8")
    return report


def _differences(first: Outcome, second: Outcome) -> dict[str, dict[str, dict[str, Row]]]:
    """Setting -> reward -> row."""
    return {
        label: compare_evaluations(ours, second.results.evaluations[label])
        for label, ours in first.results.evaluations.items()
    }


def _format(settings: Mapping[str, Mapping[str, Mapping[str, Row]]]) -> str:
    """A table for each reward of each setting."""
    return "\n\n".join(
        format_differences(f"{setting}: {key}" if len(settings) > 1 else key, rows)
        for setting, rewards in settings.items()
        for key, rows in rewards.items()
    )
