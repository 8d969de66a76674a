"""Several checkpoints side by side: the same prompts, the same seeds, paired differences.

    <output_dir>/<checkpoint>/    the results of each, as a single evaluation writes them
    <output_dir>/comparison.txt   all tables, and the differences of `model.path` to the others
    <output_dir>/comparison.json  the same numbers

Checkpoints are loaded one after the other. Their samples are stored like those of any evaluation,
so an interrupted comparison continues, and a checkpoint that is added later is the only one that is
sampled.

With the mean score of a prompt's samples s_p, the differences d_p = s_p - s'_p of P prompts have

    mean d̄,  stderr = √(Σ_p (d_p - d̄)² / (P - 1) / P),  interval d̄ ± t(P - 1, 97.5 %) · stderr
"""

import gc
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from scipy.special import stdtrit  # `scipy.stats` takes a second to import

from mmrl.config import ConfigError
from mmrl.evaluation.benchmark import check_benchmark, run_benchmark
from mmrl.evaluation.eval_config import EvalConfig, same_checkpoint
from mmrl.evaluation.results import Report, format_table, write_json
from mmrl.rollouts.held_out import Evaluation
from mmrl.run.environment import git_commit
from mmrl.run.run_lock import check_writable, lock_directory
from mmrl.runtime.activity import activity
from mmrl.runtime.launch import join_processes
from mmrl.runtime.launch_checks import check_launch
from mmrl.types import Prompt

Row = dict[str, float | None]
"""`first` and `second` (means of the two), `difference`, `stderr`, `low` and `high` (of the 95 %
interval), `n` (prompts); None where there are too few prompts."""
NOTE = """\
differences: first minus second on the same prompts and seeds, with the standard error and the 95 %
interval of paired differences.
"""


def run(config: EvalConfig) -> Report | None:
    """Evaluate `model.path`, and all of `compare_to`; see `run_benchmark`. What was written; None
    on all processes but the main one."""
    if not config.compare_to:
        outcome = run_benchmark(config)
        return None if outcome is None else outcome[0]
    check_launch()
    main, tables = join_processes().is_main_process, dict[str, Report]()
    check_evaluations(config)
    evaluations = dict[str, Mapping[str, Evaluation]]()
    with lock_directory(Path(config.output_dir), main):
        for label, each in list_evaluations(config).items():
            with activity(label):
                outcome = run_benchmark(each)
            if outcome is not None:
                tables[label], evaluations[label] = outcome[0], outcome[1].evaluations
            gc.collect()
            if torch.accelerator.is_available():
                torch.accelerator.memory.empty_cache()
        return _write_comparison(config, tables, evaluations) if main else None


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
    names = ["-".join(same_checkpoint(path).strip("/").split("/")[-2:]) for path in paths]
    if len({*names}) < len(names):
        names = [f"{n}-{name}" for n, name in enumerate(names)]
    return {
        name: replace(
            config,
            compare_to=[],
            model=replace(config.model, path=path),
            output_dir=str(Path(config.output_dir) / name),
            geneval_dir=config.geneval_dir and str(Path(config.geneval_dir) / name),
        )
        for name, path in zip(names, paths, strict=True)
    }


def compare_evaluations(first: Evaluation, second: Evaluation) -> dict[str, Row]:
    """The differences of each reward; None of a reward that scored no sample of both. Raises
    ConfigError: the evaluations are of different prompts."""
    ours, theirs = ([(p.id, p.text) for p in each.prompts] for each in (first, second))
    if ours != theirs:
        differ = sorted({name for name, _ in set(ours) ^ set(theirs)})
        some = f"{len(differ)} differ, such as {', '.join(differ[:3])}. One takes shorter prompts"
        advice = "raise model.max_prompt_length, or shorten max_completion_length"
        raise ConfigError(f"the checkpoints were given different prompts: {some}: {advice}.")
    rows = {}
    for key, scores in first.scores.items():
        pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for prompt, *pair in zip(first.prompts, scores, second.scores[key], strict=True):
            if not any(map(math.isnan, pair)):
                pairs[prompt.id].append((pair[0], pair[1]))
        if pairs:
            rows[key] = compare_pairs(list(pairs.values()))
    return rows


def compare_pairs(prompts: Sequence[Sequence[tuple[float, float]]]) -> Row:
    """The differences of the (first, second) scores of each prompt; at least one."""
    means = [[statistics.fmean(side) for side in zip(*some, strict=True)] for some in prompts]
    differences, number = [a - b for a, b in means], len(means)
    mean, error, half = statistics.fmean(differences), None, math.nan
    if number > 1:
        error = statistics.stdev(differences) / math.sqrt(number)
        half = error * float(stdtrit(number - 1, 0.975))
    return {
        "first": statistics.fmean(a for a, _ in means),
        "second": statistics.fmean(b for _, b in means),
        "difference": mean,
        "stderr": error,
        "low": None if error is None else mean - half,
        "high": None if error is None else mean + half,
        "n": number,
    }


def format_differences(title: str, rows: Mapping[str, Row]) -> str:
    """A line per reward: both means, difference ± standard error, interval, number of prompts."""
    cells = {}
    for key, row in rows.items():
        error, low, high = row["stderr"], row["low"], row["high"]
        cells[key] = [
            f"{row['first']:.3f}",
            f"{row['second']:.3f}",
            f"{row['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}"),
            "-" if low is None else f"{low:+.3f} to {high:+.3f}",
            f"{row['n']}",
        ]
    return format_table(title, ["first", "second", "difference", "95 % interval", "n"], cells)


def _write_comparison(
    config: EvalConfig,
    reports: Mapping[str, Report],
    evaluations: Mapping[str, Mapping[str, Evaluation]],
) -> Report:
    first, *others = reports
    differences = {
        other: {
            setting: compare_evaluations(ours, evaluations[other][setting])
            for setting, ours in evaluations[first].items()
        }
        for other in others
    }
    parts = [f"{label}\n\n{report.table}" for label, report in reports.items()]
    for other, settings in differences.items():
        tables = [format_differences(setting, rows) for setting, rows in settings.items()]
        parts.append("\n\n".join([f"first: {first}, second: {other}", *tables]) + "\n")
    content = {
        "commit": git_commit(),
        "config": config.to_dict(),
        "checkpoints": dict(zip(reports, [config.model.path, *config.compare_to], strict=True)),
        "tables": {label: report.tables for label, report in reports.items()},
        "first": first,
        "differences": differences,
    }
    report = Report("\n".join([*parts, NOTE]), content["tables"], content)
    out = Path(config.output_dir)
    (out / "comparison.txt").write_text(report.table, encoding="utf-8")
    write_json(out / "comparison.json", content)
    return report
