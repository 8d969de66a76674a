"""What a table may report: choices made on validation, results of its settings, unread tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.config import ConfigError, check, load_config, to_plain
from mmrl.config.settings import flatten
from mmrl.rl_config import RLConfig
from scripts.claims import evaluations
from scripts.claims.held_out_prompts import check_directory, check_unread, prompt_digests
from scripts.claims.planned_runs import FREE, Run, digest, digest_weights
from scripts.claims.records import Record
from scripts.claims.table_config import START, ClaimTask, one_task, points

if TYPE_CHECKING:
    from scripts.claims.table import Table

SHOWN = 5
"""Most differences that a message lists."""


def check_tasks(table: Table) -> None:
    """Refuse runs that are impossible, have other weights at the start, or read test prompts.

    Raises:
        ConfigError: there is one.
    """
    for task in table.config.tasks:
        _check_task(table, task)


def _check_task(table: Table, name: str) -> None:
    options, start = table.config.tasks[name], _start_of_all(table, name)
    for method in table.config.methods:
        words = table.words(name, method)
        config, where = load_config(RLConfig, words), f"methods.{method}"
        evaluated = config.tasks[name].eval_prompts
        check_unread(config, name, options.test, where)
        advice = f"It must be tasks.{name}.validation of the table."
        check(
            evaluated == options.validation,
            f"{where} eval_prompts",
            evaluated,
            "left as it is",
            advice,
        )
        check(config.eval_steps > 0, f"{where} eval_steps", 0, "above 0", "It makes the curve.")
        same = config.model.path == start.model.path
        check(
            same,
            f"{where} model.path",
            config.model.path,
            f"'{start.model.path}', as of others",
        )
        for settings, run in table.candidates(name, method):
            check_unread(run.config, name, options.test, f"{where} with {settings}")
    table.metric(name)
    table.sampler_grid(name)


def _start_of_all(table: Table, task: str) -> RLConfig:
    """Settings of the first method, whose weights at the start all methods must have."""
    for method in table.config.methods:
        path = table.path(task, method)
        one_task(load_config(RLConfig, [f"config={path}"]).tasks, task, path)
    return table.start(task)


def check_records(table: Table) -> None:
    """Refuse results that are not of the settings, choices and prompts of the table.

    Raises:
        ConfigError: there is one.
    """
    for task, options in table.config.tasks.items():
        _check_choice(table, table.records.get("sampler", task=task), task, "the sampler")
        _check_tried_samplers(table, task, options)
        for method in table.config.methods:
            record = table.records.get("choice", task=task, method=method)
            _check_choice(table, record, task, f"the choice of {method}")
            _check_tried(table, record, task, method)
    for each in table.all:
        _check_run_record(table, *each)
    for task in table.config.tasks:
        _check_readings(table, task)


def _check_choice(table: Table, record: Record | None, task: str, what: str) -> None:
    """Refuse a choice that was not made on the validation prompts of the table."""
    if record is None:
        return
    for key, value in made_on(table, task).items():
        if record.get(key) != value:
            raise ConfigError(
                f"{what} on {task} was made on {record.get('made_on')!r} ({key} is"
                f" {record.get(key)!r}), not on the table's validation prompts ({value!r}). It"
                " cannot be reported: name another file as results and choose again."
            )


def _check_tried_samplers(table: Table, task: str, options: ClaimTask) -> None:
    record = table.records.get("sampler", task=task)
    if record is not None:
        grid = [
            evaluations.sampler_values(config.sampler) for _, config in table.sampler_grid(task)
        ]
        _check_grid(table, record, "sampler", grid, f"tasks.{task}.samplers")


def _check_tried(table: Table, record: Record | None, task: str, method: str) -> None:
    if record is not None:
        grid = list(points(table.config.grid_of(method)))
        _check_grid(table, record, "settings", grid, f"the grid of {method} on {task}")


def _check_grid(table: Table, record: Record, key: str, grid: list[Any], what: str) -> None:
    if [each[key] for each in record["tried"]] != grid:
        raise ConfigError(
            f"{what} has other values than those that were tried. Set them back, or name"
            f" another file than '{table.records.path}' as results and choose again."
        )


def _check_run_record(table: Table, task: str, method: str, seed: int) -> None:
    """Refuse results of other settings than those of the table."""
    record = table.run_record(task, method, seed)
    if record is None:
        return
    run = table.run(task, method, seed)
    if run is None:
        raise ConfigError(
            f"'{table.records.path}' has a run of {method} on {task}, but no choice made on"
            f" validation of {', '.join(table.config.grid_of(method))}. It cannot be reported:"
            " restore the line of the choice, or name another file as results."
        )
    if record["config"] != digest(run.settings):
        told = _differences(record["settings"], run.settings)
        raise ConfigError(
            f"{run.label} was recorded with other settings: {told}. Test is read once per"
            " setting of a table: set them back, or name another file as results (and another"
            " output_dir), and say on the page that test was read before."
        )
    if run.folder.is_dir() and (run.finished or (run.folder / "checkpoints").is_dir()):
        check_weights(table, run, seed)


def _check_readings(table: Table, task: str) -> None:
    """Refuse readings of other test prompts, of another number of samples, or of another start."""
    readings = [each for each in table.records.all("test") if each["task"] == task]
    of_start = [each for each in readings if each["method"] == START]
    of_start += [each for each in table.records.all("sampler") if each["task"] == task]
    wanted: list[tuple[str, Any, list[Record]]] = [
        ("prompts", table.config.tasks[task].test, readings),
        ("samples", table.config.samples, readings),
    ]
    if of_start:  # a table without results does not wait for the digest of large weights
        weights = digest_weights(Path(table.start(task).model.path))
        wanted.append(("weights", weights, of_start))
    for key, value, records in wanted:
        for record in records:
            if record[key] != value:
                raise ConfigError(
                    f"a result on {task} in '{table.records.path}' has {key} {record[key]!r}, and"
                    f" the table {value!r}: set it back, or name another file as results (and"
                    " another output_dir), and say on the page that test was read before."
                )


def check_weights(table: Table, run: Run, seed: int) -> None:
    """Refuse weights other than those that were recorded of a run.

    Raises:
        ConfigError: they are others, or there are none.
    """
    record = table.run_record(run.task, run.method, seed)
    found = digest_weights(run.weights)
    if record is not None and record["weights"] != found:
        raise ConfigError(
            f"'{run.weights}' has other weights ({found}) than the run that was recorded"
            f" ({record['weights']}). Test is read once per run: restore them, or name another"
            " output_dir and another file as results."
        )


def check_run_directory(table: Table, run: Run) -> None:
    """Refuse a directory with a run of other settings, or one that has read test prompts.

    Raises:
        ConfigError: it is one.
    """
    path = run.folder / "config.yaml"
    if not path.is_file():
        return
    check_directory(run.folder, run.task, table.config.tasks[run.task].test)
    there = load_config(RLConfig, [f"config={path}"])
    told = _differences(_plain(there), _plain(run.config))
    if told:
        raise ConfigError(
            f"'{run.folder}' holds a run with other settings: {told}. Remove it, or choose"
            " another output_dir."
        )


def made_on(table: Table, task: str) -> dict[str, str]:
    """The validation prompts that a choice is made on, as its record names them."""
    options = table.config.tasks[task]
    prompts = prompt_digests(options.validation, table.start(task).tasks[task], held_out=True)
    return {"made_on": options.validation, "prompts": digest(sorted(prompts))}


def _plain(config: RLConfig) -> dict[str, Any]:
    found = flatten(to_plain(config), lists=False)
    return {key: value for key, value in found if not FREE.fullmatch(key)}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs, in words; empty where nothing does."""
    changed = [key for key in sorted({**old, **new}) if old.get(key) != new.get(key)]
    shown = [f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed[:SHOWN]]
    return "; ".join(shown) + (f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else "")
